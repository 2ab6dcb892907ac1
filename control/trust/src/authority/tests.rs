//! Authorities and what they sign.

use super::*;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)
}

fn day() -> Validity {
    Validity::issued(now(), crate::validity::LIFE, None)
}

#[test]
fn what_an_authority_signs_is_the_identity_and_not_what_the_request_names() {
    let authority = Authority::create(now()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut forged = params("admin", &["system:masters".to_owned()], day()).unwrap();
    forged.use_authority_key_identifier_extension = false;
    forged.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let request = forged.serialize_request(&key).unwrap();
    let node = Identity::node("a").unwrap();
    let chain = authority.sign(request.der(), &node, &[], day()).unwrap();
    assert_eq!(Identity::of_certificate(&chain[0]), Ok(node));
    assert!(!is_authority(&chain[0]));
    assert_eq!(Validity::of_certificate(&chain[0]), Some(day()));
    let credentials = Credentials::new(chain, &key).unwrap();
    assert!(Credentials::new(credentials.chain().to_vec(), &KeyPair::generate().unwrap()).is_err());
}

#[test]
fn a_request_that_its_key_has_not_signed_is_refused() {
    let authority = Authority::create(now()).unwrap();
    let node = Identity::node("a").unwrap();
    let (_key, mut request) = request().unwrap();
    assert!(authority.sign(&request, &node, &[], day()).is_ok());
    let last = request.len() - 1;
    request[last] ^= 1;
    assert!(matches!(
        authority.sign(&request, &node, &[], day()),
        Err(AuthorityError::Request)
    ));
    assert!(authority.sign(b"", &node, &[], day()).is_err());
}

#[test]
fn an_authority_is_the_same_after_it_was_written() {
    let authority = Authority::create(now()).unwrap();
    let (certificate, key) = (authority.certificate_pem(), authority.key_pem());
    let again = Authority::from_pem(&certificate, &key, now()).unwrap();
    assert_eq!(again.hash(), authority.hash());
    let hash: AuthorityHash = authority.hash().to_string().parse().unwrap();
    assert_eq!(hash, authority.hash());
    assert!("sha256:00".parse::<AuthorityHash>().is_err());
}

#[test]
fn what_is_no_authority_is_refused() {
    let authority = Authority::create(now()).unwrap();
    let (certificate, key) = (authority.certificate_pem(), authority.key_pem());
    let other = Authority::create(now()).unwrap();
    let mismatch = Authority::from_pem(&certificate, &other.key_pem(), now());
    assert!(matches!(
        mismatch,
        Err(AuthorityError::Credentials(CredentialsError::Mismatch))
    ));
    let leaf = authority
        .client(&Identity::node("a").unwrap(), day())
        .unwrap();
    let no_authority = Authority::from_pem(&leaf.chain_pem(), &leaf.key_pem(), now());
    assert!(matches!(no_authority, Err(AuthorityError::NoAuthority)));
    for (is_ca, usage) in [
        (IsCa::NoCa, KeyUsagePurpose::KeyCertSign),
        (IsCa::ExplicitNoCa, KeyUsagePurpose::KeyCertSign),
        (
            IsCa::Ca(BasicConstraints::Unconstrained),
            KeyUsagePurpose::DigitalSignature,
        ),
    ] {
        let key = KeyPair::generate().unwrap();
        let mut params = params("almost", &[], day()).unwrap();
        params.is_ca = is_ca;
        params.key_usages = vec![usage];
        let text = params.self_signed(&key).unwrap().pem();
        let almost = Authority::from_pem(&text, &key.serialize_pem(), now());
        assert!(
            matches!(almost, Err(AuthorityError::NoAuthority)),
            "{is_ca:?} {usage:?}"
        );
    }
    let expired = Authority::from_pem(&certificate, &key, now() + LIFE * 2).unwrap_err();
    assert!(
        expired.to_string().contains("valid from 2027-"),
        "{expired}"
    );
}

#[test]
fn a_user_has_at_most_one_group() {
    let authority = Authority::create(now()).unwrap();
    let user = Identity::user("eve", vec!["dev".into(), "ops".into()]).unwrap();
    assert!(matches!(
        authority.client(&user, day()),
        Err(AuthorityError::Groups(2))
    ));
    let user = Identity::user("eve", vec!["dev".into()]).unwrap();
    assert_eq!(authority.client(&user, day()).unwrap().identity(), Ok(user));
}

#[test]
fn no_debug_output_has_a_key() {
    let authority = Authority::create(now()).unwrap();
    let node = authority
        .client(&Identity::node("a").unwrap(), day())
        .unwrap();
    let key = node.key_pem();
    let line = key.lines().nth(1).unwrap();
    assert!(!format!("{node:?}{authority:?}").contains(line));
    assert!(format!("{node:?}").len() < 200);
}

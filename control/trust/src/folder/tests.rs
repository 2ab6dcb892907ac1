//! Files of authorities and credentials: permissions, damage, and disks that cannot be written.

use super::*;
use crate::Identity;
use crate::validity::{LIFE, Validity};

#[test]
fn an_authority_is_created_once_and_its_key_is_its_owners() {
    let folder = tempfile::tempdir().unwrap();
    let pki = folder.path().join("pki");
    let now = SystemTime::now();
    let created = embedded(&pki, now).unwrap();
    let again = embedded(&pki, now).unwrap();
    assert_eq!(created.certificate(), again.certificate());
    let mode = |name: &str| fs::metadata(pki.join(name)).unwrap().permissions().mode();
    assert_eq!(mode("ca.key") & 0o777, 0o600);
    assert_eq!(mode("") & 0o777, 0o700);
    for mode in [0o640, 0o644] {
        let exposed = Permissions::from_mode(mode);
        fs::set_permissions(pki.join("ca.key"), exposed).unwrap();
        assert!(matches!(embedded(&pki, now), Err(FolderError::Exposed(_))));
    }
    // The group of a mounted secret may read its key.
    fs::set_permissions(pki.join("ca.key"), Permissions::from_mode(0o640)).unwrap();
    authority(&pki.join("ca.crt"), &pki.join("ca.key"), now).unwrap();
}

#[test]
fn a_folder_of_an_authority_in_which_others_can_replace_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    embedded(folder.path(), now).unwrap();
    for (mode, right) in [(0o777, "chmod 755"), (0o770, "chmod 750")] {
        fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
        let refused = embedded(folder.path(), now).unwrap_err().to_string();
        assert!(refused.contains(right), "{refused}");
    }
    assert!(check_data(folder.path()).is_ok());
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let refused = check_data(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("chmod 775"), "{refused}");
}

#[test]
fn a_key_of_another_user_is_refused_where_this_one_could_have_read_it() {
    // Only root can give files away.
    if !geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    embedded(folder.path(), now).unwrap();
    for path in [folder.path().join("ca.key"), folder.path().to_owned()] {
        std::os::unix::fs::chown(&path, Some(1_000), None).unwrap();
        let refused = embedded(folder.path(), now).unwrap_err().to_string();
        assert!(
            refused.contains("user 1000") && refused.contains("chown 0"),
            "{refused}"
        );
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    }
    embedded(folder.path(), now).unwrap();
}

#[test]
fn a_key_that_is_empty_or_a_folder_is_named_with_that() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("ca.key");
    fs::write(&key, "").unwrap();
    fs::set_permissions(&key, Permissions::from_mode(KEY_MODE)).unwrap();
    let empty = embedded(folder.path(), SystemTime::now()).unwrap_err();
    assert!(empty.to_string().contains("ca.key"), "{empty}");
    fs::remove_file(&key).unwrap();
    fs::create_dir(&key).unwrap();
    let refused = embedded(folder.path(), SystemTime::now()).unwrap_err();
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert!(cause.contains("directory"), "{refused}: {cause}");
}

#[test]
fn an_authority_whose_certificate_is_lost_keeps_its_key_and_what_it_has_signed() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let before = embedded(folder.path(), now).unwrap();
    let key = fs::read(folder.path().join("ca.key")).unwrap();
    fs::remove_file(folder.path().join("ca.crt")).unwrap();
    let after = embedded(folder.path(), now).unwrap();
    assert_eq!(fs::read(folder.path().join("ca.key")).unwrap(), key);
    assert_eq!(after.hash(), before.hash());
    let again = embedded(folder.path(), now).unwrap();
    assert_eq!(again.certificate(), after.certificate());
}

#[test]
fn an_authority_that_is_damaged_is_named_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    embedded(folder.path(), now).unwrap();
    let path = folder.path().join("ca.crt");
    let whole = fs::read(&path).unwrap();
    for end in [0, 1, 30, whole.len() / 2, whole.len() - 30] {
        fs::write(&path, &whole[..end]).unwrap();
        let error = embedded(folder.path(), now).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap();
        let cause = cause.source().unwrap().to_string();
        assert!(error.to_string().contains("ca.crt"), "{error}");
        assert!(cause.contains("cut off"), "{cause}");
    }
    fs::write(&path, &whole).unwrap();
    fs::remove_file(folder.path().join("ca.key")).unwrap();
    let error = embedded(folder.path(), now).unwrap_err();
    assert!(error.to_string().contains("ca.key"), "{error}");
}

#[test]
fn an_operators_authority_that_is_damaged_or_replaced_by_half_is_named_by_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let [first, other] = [(); 2].map(|()| Authority::create(now).unwrap());
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let opened = |text: &[u8], secret: &[u8]| {
        fs::write(&certificate, text).unwrap();
        write(&key, secret, KEY_MODE).unwrap();
        authority(&certificate, &key, now).map_err(|error| {
            let first: &dyn std::error::Error = &error;
            let errors = std::iter::successors(Some(first), |error| error.source());
            errors
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(": ")
        })
    };
    let (text, secret) = (first.certificate_pem(), first.key_pem());
    let (text, secret) = (text.as_bytes(), secret.as_bytes());
    assert!(opened(text, secret).is_ok());
    for (text, secret, file, reason) in [
        (&text[..text.len() / 2], secret, "tls.crt", "cut off"),
        (b"", secret, "tls.crt", "cut off"),
        (text, &secret[..secret.len() / 2], "tls.key", "cut off"),
        (b"\xff", secret, "tls.crt", "UTF-8"),
        (
            other.certificate_pem().as_bytes(),
            secret,
            "tls.crt",
            "both files must be replaced together",
        ),
        (
            text,
            other.key_pem().as_bytes(),
            "tls.crt",
            "both files must be replaced together",
        ),
    ] {
        let error = opened(text, secret).unwrap_err();
        assert!(error.contains(file) && error.contains(reason), "{error}");
    }
    fs::remove_file(&certificate).unwrap();
    let missing = authority(&certificate, &key, now).unwrap_err().to_string();
    assert!(
        missing.contains("cannot read") && missing.contains("tls.crt"),
        "{missing}"
    );
}

#[test]
fn a_folder_of_keys_that_others_can_open_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let pki = folder.path().join("pki");
    fs::create_dir(&pki).unwrap();
    fs::set_permissions(&pki, Permissions::from_mode(0o755)).unwrap();
    embedded(&pki, SystemTime::now()).unwrap();
    let mode = fs::metadata(&pki).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn credentials_are_kept_in_one_file_and_stay_when_it_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let authority = Authority::create(now).unwrap();
    let validity = Validity::issued(now, LIFE, None);
    let node = |name| authority.client(&Identity::node(name).unwrap(), validity);
    let path = folder.path().join("identity/node.pem");
    keep(&path, &node("a").unwrap()).unwrap();
    // A folder in the place of the new file: it cannot be written.
    fs::create_dir(path.with_file_name(".node.pem.new")).unwrap();
    assert!(keep(&path, &node("b").unwrap()).is_err());
    let kept = load(&path, &path).unwrap();
    assert_eq!(kept.identity(), Identity::node("a"));
}

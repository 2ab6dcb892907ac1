//! A node that signs a certificate with its key: it is no authority.

use std::fs;

use dormouse_trust::folder;

use crate::trust::{Trusted, output};
use crate::world::in_namespace;

/// The certificate of an administrator, signed with these files; the arguments with which curl shows it and those that have signed it.
async fn forged(control: &Trusted, certificate: &str, key: &str) -> Vec<String> {
    let folder = control.world.folder.path();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (own, request) = (path("own.key"), path("own.csr"));
    let (extensions, chain) = (path("extensions"), path("chain.pem"));
    fs::write(&extensions, "extendedKeyUsage=clientAuth\n").unwrap();
    let subject = "/O=system:masters/CN=root";
    let curve = "ec_paramgen_curve:P-256";
    let requests = [
        "req", "-new", "-nodes", "-newkey", "ec", "-pkeyopt", curve, "-subj", subject,
    ];
    let signs = [
        "x509",
        "-req",
        "-days",
        "1",
        "-set_serial",
        "7",
        "-CA",
        certificate,
        "-CAkey",
        key,
    ];
    let files = ["-extfile", &extensions, "-in", &request, "-out", &chain];
    for args in [
        [&requests[..], &["-keyout", &own, "-out", &request]].concat(),
        [&signs[..], &files].concat(),
    ] {
        let (ok, said) = output("openssl", &args).await;
        assert!(ok, "{said}");
    }
    let signed = fs::read_to_string(&chain).unwrap() + &fs::read_to_string(certificate).unwrap();
    fs::write(&chain, signed).unwrap();
    vec!["--cert".to_owned(), chain, "--key".to_owned(), own]
}

#[test]
fn a_certificate_that_a_node_has_signed_is_refused() {
    in_namespace(async || {
        let control = Trusted::start(&[]).await;
        let node = control.node("a").await;
        let pem = control.world.folder.path().join("signer.pem");
        folder::keep(&pem, &node.credentials).unwrap();
        let pem = pem.to_str().unwrap();
        let nodes = "/api/v1/nodes";
        let shown = forged(&control, pem, pem).await;
        assert_eq!(control.get(nodes, &shown).await, "");
        // With the authority's key, it would be an administrator's.
        let authority = [control.pki("ca.crt"), control.pki("ca.key")];
        let shown = forged(&control, &authority[0], &authority[1]).await;
        let answer = control.get(nodes, &shown).await;
        assert!(answer.contains("NodeList"), "{answer}");
    });
}

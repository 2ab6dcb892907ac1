//! The forms in which a program could write a secret, and the search for them.

use std::collections::HashMap;

use k8s_openapi::ByteString;
use serde_json::Value;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, pem::PemObject};

/// Where the number begins that is the key, in PKCS#8 of P-256 (RFC 5958, RFC 5915), and its length.
const SCALAR: usize = 36;
const SCALAR_BYTES: usize = 32;
/// The first byte of the second line of PEM, and whole groups of it that are of that number.
const LINE: usize = 48;
const LINE_BYTES: usize = 18;

/// A secret that must not be found.
pub(super) struct Secret {
    pub(super) name: &'static str,
    forms: Vec<Vec<u8>>,
}

impl Secret {
    pub(super) fn of_text(name: &'static str, text: &str) -> Self {
        let forms = forms(text.as_bytes());
        Self { name, forms }
    }

    /// The first private key in PEM. Its public part is in certificates, and no secret.
    pub(super) fn of_key(name: &'static str, pem: &str) -> Self {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        let der = key.secret_der();
        assert_eq!(
            der[SCALAR - 2..SCALAR],
            [4, 32],
            "{name} is no key of P-256"
        );
        let mut forms = forms(&der[SCALAR..SCALAR + SCALAR_BYTES]);
        // A line of PEM, as it is, and in a kubeconfig.
        let line = base64(&der[LINE..LINE + LINE_BYTES]);
        forms.extend(self::forms(line.as_bytes()));
        Self { name, forms }
    }

    /// The client's key of a kubeconfig.
    pub(super) fn of_kubeconfig(name: &'static str, kubeconfig: &Value) -> Self {
        let data = kubeconfig["users"][0]["user"]["client-key-data"].clone();
        let pem: ByteString = serde_json::from_value(data).unwrap();
        Self::of_key(name, &String::from_utf8(pem.0).unwrap())
    }
}

fn base64(bytes: &[u8]) -> String {
    let text = serde_json::to_value(ByteString(bytes.to_vec()));
    text.unwrap().as_str().unwrap().to_owned()
}

/// The digits of base64 that only these bytes decide, where they begin at this position of a group of three.
fn base64_at(bytes: &[u8], position: usize) -> String {
    let whole = base64(&[&vec![0; position][..], bytes].concat());
    let bits = 8 * position;
    let digits = (bits + 8 * bytes.len()) / 6;
    whole[bits.div_ceil(6)..digits].to_owned()
}

fn forms(bytes: &[u8]) -> Vec<Vec<u8>> {
    let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let hex = hex.concat();
    let mut texts = vec![
        numbers.join(", "),
        numbers.join(","),
        hex.to_uppercase(),
        hex,
    ];
    for position in 0..3 {
        let digits = base64_at(bytes, position);
        texts.push(digits.replace('+', "-").replace('/', "_"));
        texts.push(digits);
    }
    let texts = texts.into_iter().map(String::into_bytes);
    texts.chain([bytes.to_vec()]).collect()
}

/// Each secret that is in a text, with the name of the text.
pub(super) fn found(secrets: &[Secret], texts: &[(String, Vec<u8>)]) -> Vec<String> {
    // By the first bytes of a form, so that each text is read once.
    let mut begins: HashMap<[u8; 4], Vec<(&str, &[u8])>> = HashMap::new();
    let mut may_begin = vec![false; 1 << 16];
    for secret in secrets {
        for form in &secret.forms {
            let first = form[..4].try_into().unwrap();
            may_begin[pair(form)] = true;
            begins.entry(first).or_default().push((secret.name, form));
        }
    }
    let mut found = Vec::new();
    for (name, text) in texts {
        for at in 0..text.len().saturating_sub(4) {
            if !may_begin[pair(&text[at..])] {
                continue;
            }
            let forms = begins.get(&text[at..at + 4]).into_iter().flatten();
            let here = forms.filter(|(_, form)| text[at..].starts_with(form));
            found.extend(here.map(|(secret, _)| format!("{secret} in {name}")));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn pair(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) << 8 | usize::from(bytes[1])
}

#[test]
fn a_secret_is_found_in_each_form_and_another_one_in_none() {
    let secret = [Secret::of_text("s", "do not show this")];
    let bytes = b"do not show this";
    let hex = "646f206e6f742073686f772074686973";
    let numbers = format!("[{}]", bytes.map(|byte| byte.to_string()).join(", "));
    let nested = base64(format!("ab{hex}").as_bytes());
    let nested = base64(format!("x{}", base64(nested.as_bytes())).as_bytes());
    for (text, times) in [
        ("log: do not show this.".to_owned(), 1),
        (format!("x{hex}"), 1),
        (hex.to_uppercase(), 1),
        (numbers, 1),
        (base64(b"do not show this"), 1),
        (base64(b"1do not show this"), 1),
        (base64(b"12do not show this34"), 1),
        (base64(b"do not show that"), 0),
        // Forms of forms are not searched.
        (nested, 0),
        (String::new(), 0),
    ] {
        let texts = [("t".to_owned(), text.clone().into_bytes())];
        assert_eq!(found(&secret, &texts).len(), times, "{text}");
    }
}

//! Container images as OCI archives (image layout 1.0 in a tar file), byte for byte the same for the same files. Pure.
//!
//! Reading order: the image ([`Image`]), its blobs here, the tar format (`tar`).

#![forbid(unsafe_code)]

mod tar;

use std::fmt::Write;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

pub use tar::{Entry, NAME_LEN_MAX};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Mode of the files of the layout.
const BLOB_MODE: u32 = 0o644;

/// An image of one layer.
#[derive(Clone, Debug)]
pub struct Image {
    /// Name and tag, like `localhost/dormouse-node:0.1.0`.
    pub name: String,
    /// The architecture, as Go names it.
    pub architecture: &'static str,
    /// The files; their folders are created.
    pub files: Vec<Entry>,
    /// The program to execute, and its arguments.
    pub entrypoint: Vec<String>,
}

/// Go's name of an architecture, by Rust's.
pub fn architecture(rust: &'static str) -> &'static str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl Image {
    /// The archive, which container runtimes import.
    pub fn archive(&self) -> Vec<u8> {
        let layer = tar::archive(&self.files);
        let config = json!({
            "architecture": self.architecture,
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint},
            "rootfs": {"type": "layers", "diff_ids": [name_of(&layer)]},
        });
        let config = bytes(&config);
        let manifest = bytes(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config),
            "layers": [descriptor(LAYER, &layer)],
        }));
        let mut listed = descriptor(MANIFEST, &manifest);
        listed["platform"] = json!({"architecture": self.architecture, "os": "linux"});
        // Containerd reads the first, other programs the second, which is the tag alone or the whole name.
        listed["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": self.name,
        });
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [listed]});
        let mut files = vec![
            file(
                "oci-layout".to_owned(),
                bytes(&json!({"imageLayoutVersion": "1.0.0"})),
            ),
            file("index.json".to_owned(), bytes(&index)),
        ];
        files.extend([config, manifest, layer].map(blob));
        tar::archive(&files)
    }
}

fn blob(bytes: Vec<u8>) -> Entry {
    file(format!("blobs/sha256/{}", hex(&bytes)), bytes)
}

fn file(path: String, bytes: Vec<u8>) -> Entry {
    Entry {
        path,
        mode: BLOB_MODE,
        bytes,
    }
}

fn descriptor(kind: &str, blob: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": name_of(blob), "size": blob.len()})
}

/// The digest by which a blob is referred to.
fn name_of(blob: &[u8]) -> String {
    format!("sha256:{}", hex(blob))
}

fn hex(blob: &[u8]) -> String {
    let mut text = String::new();
    for byte in digest(&SHA256, blob).as_ref() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// JSON with its keys in order.
fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        let file = |path: &str| Entry {
            path: path.to_owned(),
            mode: 0o755,
            bytes: path.repeat(300).into_bytes(),
        };
        Image {
            name: "localhost/test:1".to_owned(),
            architecture: "amd64",
            files: vec![file("program"), file("lib/deep/file")],
            entrypoint: vec!["/program".to_owned()],
        }
    }

    /// The files of an archive.
    fn listed(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut files = Vec::new();
        let mut rest = archive;
        while let Some((header, after)) = rest.split_at_checked(512) {
            let text = |from: usize, until: usize| {
                let field = header[from..until].split(|byte| *byte == 0).next().unwrap();
                String::from_utf8(field.to_vec()).unwrap()
            };
            if text(0, 100).is_empty() {
                break;
            }
            let size = usize::from_str_radix(text(124, 136).trim(), 8).unwrap();
            if header[156] == b'0' {
                files.push((text(0, 100), after[..size].to_vec()));
            }
            rest = &after[size.next_multiple_of(512)..];
        }
        files
    }

    #[test]
    fn equal_files_give_equal_archives() {
        assert_eq!(image().archive(), image().archive());
        let mut other = image();
        other.files[0].bytes.push(0);
        assert_ne!(image().archive(), other.archive());
    }

    #[test]
    fn every_digest_of_the_layout_is_that_of_a_blob() {
        let files = listed(&image().archive());
        let read = |path: &str| {
            let found = files.iter().find(|(name, _)| name == path);
            found.unwrap_or_else(|| panic!("{path}")).1.clone()
        };
        let follow = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            let blob = read(&digest.replace("sha256:", "blobs/sha256/"));
            assert_eq!(name_of(&blob), digest);
            assert_eq!(descriptor["size"], blob.len());
            blob
        };
        let index: Value = serde_json::from_slice(&read("index.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&follow(&index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&follow(&manifest["config"])).unwrap();
        let layer = follow(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], name_of(&layer));
        let inside: Vec<_> = listed(&layer).into_iter().map(|(path, _)| path).collect();
        assert_eq!(inside, ["lib/deep/file", "program"]);
        assert_eq!(files.len(), 5);
    }
}

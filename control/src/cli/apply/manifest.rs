//! Manifests: files, or folders of files, of one or more documents, each describing one object, and no two the same object or VIP.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use dormouse_command::{CommandError, Exit};
use serde_json::{Value, json};

use crate::cli::codes::Code;
use crate::cli::resource::Resource;

/// One object of a manifest.
#[derive(Debug)]
pub(crate) struct Document {
    /// Its resource.
    pub(crate) resource: Resource,
    /// The object, with its namespace filled in.
    pub(crate) value: Value,
    /// Its namespace: the document's, or the command's.
    pub(crate) namespace: String,
    /// `metadata.name`; not empty.
    pub(crate) name: String,
    /// File and number of the document, for errors.
    pub(crate) place: String,
}

impl Document {
    /// The object's path on the server.
    pub(crate) fn path(&self) -> String {
        self.resource.path_of(&self.namespace, &self.name)
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.resource.namespaced {
            return write!(f, "{} {}", self.resource.singular, self.name);
        }
        write!(
            f,
            "{} {}/{}",
            self.resource.singular, self.namespace, self.name
        )
    }
}

/// Reads all documents of all files; documents without a namespace get `namespace`.
pub(crate) fn read(filenames: &[String], namespace: &str) -> Result<Vec<Document>, CommandError> {
    let mut documents = Vec::new();
    for filename in filenames {
        let files = files_of(filename).map_err(|error| unreadable(filename, &error.to_string()))?;
        for file in &files {
            let text = text_of(file).map_err(|error| unreadable(file, &error.to_string()))?;
            documents.extend(parse(file, &text, namespace)?);
        }
    }
    if documents.is_empty() {
        let cause = "there are no documents: of a folder, files *.yaml, *.yml and *.json are read";
        return Err(unreadable(&filenames.join(", "), cause));
    }
    check_duplicates(&documents)?;
    Ok(documents)
}

/// The file itself, or the manifests of a folder in order of their names, without those of folders in it, as kubectl reads it.
fn files_of(filename: &str) -> io::Result<Vec<String>> {
    let path = Path::new(filename);
    if filename == "-" || !path.is_dir() {
        return Ok(vec![filename.to_owned()]);
    }
    let entries = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
    let is_manifest = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        path.is_file() && matches!(extension, Some("yaml" | "yml" | "json"))
    };
    paths.retain(is_manifest);
    paths.sort_unstable();
    let paths = paths
        .into_iter()
        .map(|path| path.to_string_lossy().into_owned());
    Ok(paths.collect())
}

fn text_of(filename: &str) -> io::Result<String> {
    if filename != "-" {
        return fs::read_to_string(filename);
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

fn parse(filename: &str, text: &str, namespace: &str) -> Result<Vec<Document>, CommandError> {
    let filename = if filename == "-" {
        "standard input"
    } else {
        filename
    };
    let values: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| unreadable(filename, &error.to_string()))?;
    let values = values
        .into_iter()
        .enumerate()
        .filter(|(_, value)| !value.is_null());
    values
        .map(|(index, value)| {
            document(
                value,
                format!("{filename}, document {}", index + 1),
                namespace,
            )
        })
        .collect()
}

fn document(mut value: Value, place: String, namespace: &str) -> Result<Document, CommandError> {
    let Some(resource) = Resource::of_document(&value) else {
        let message = format!(
            "cannot apply {place}: apiVersion {}, kind {} is not served here",
            value["apiVersion"], value["kind"]
        );
        return Err(CommandError::new(
            Code::Kind,
            Exit::No,
            message,
            "use apiVersion dormouse.dev/v1alpha1, kind App",
        ));
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let Some(name) = text(&value["metadata"]["name"]).filter(|name| !name.is_empty()) else {
        return Err(unreadable(
            &place,
            "metadata.name is missing: every object has a name",
        ));
    };
    let namespace = text(&value["metadata"]["namespace"]).unwrap_or_else(|| namespace.to_owned());
    if resource.namespaced {
        value["metadata"]["namespace"] = json!(namespace);
    }
    Ok(Document {
        resource,
        value,
        namespace,
        name,
        place,
    })
}

/// Refuses two documents that describe the same object or claim the same VIP.
fn check_duplicates(documents: &[Document]) -> Result<(), CommandError> {
    let mut seen: BTreeMap<String, &Document> = BTreeMap::new();
    for document in documents {
        let vip = document.value["spec"]["vip"]
            .as_str()
            .map(|vip| format!("VIP {vip}"));
        for claim in [Some(document.to_string()), vip].into_iter().flatten() {
            if let Some(first) = seen.insert(claim.clone(), document) {
                let message = format!("{claim} is described twice");
                let error = CommandError::new(
                    Code::Duplicate,
                    Exit::No,
                    message,
                    "remove or rename one of them",
                );
                return Err(error
                    .note(format!("first in {}", first.place))
                    .note(format!("again in {}", document.place)));
            }
        }
    }
    Ok(())
}

fn unreadable(place: &str, why: &str) -> CommandError {
    unusable(place, why, "correct the file and apply it again")
}

/// The error of a file that cannot be used; further lines of the cause are notes.
pub(crate) fn unusable(place: &str, why: &str, hint: &str) -> CommandError {
    let mut lines = why.trim().lines();
    let message = format!("cannot read {place}: {}", lines.next().unwrap_or_default());
    let error = CommandError::new(Code::Manifest, Exit::No, message, hint);
    lines.fold(error, CommandError::note)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "apiVersion: dormouse.dev/v1alpha1\nkind: App\nmetadata: {name: web}\nspec: {vip: 'fd00:10::1'}\n";

    #[test]
    fn all_documents_of_a_file_are_read() {
        let text = format!("# first\n{WEB}---\n---\n{}", WEB.replace("web", "api"));
        let documents = parse("a.yaml", &text, "shop").unwrap();
        let names: Vec<String> = documents.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["app shop/web", "app shop/api"]);
        assert_eq!(documents[0].value["metadata"]["namespace"], "shop");
    }

    #[test]
    fn a_folder_is_read_in_the_order_of_its_files_without_others() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_str().unwrap().to_owned();
        let empty = read(std::slice::from_ref(&folder), "shop").unwrap_err();
        assert!(
            empty.message.contains("there are no documents"),
            "{}",
            empty.message
        );
        let app = |name: &str| {
            format!("apiVersion: dormouse.dev/v1alpha1\nkind: App\nmetadata: {{name: {name}}}\n")
        };
        for (file, name) in [("b.yml", "two"), ("a.yaml", "one"), ("notes.txt", "none")] {
            fs::write(dir.path().join(file), app(name)).unwrap();
        }
        fs::create_dir(dir.path().join("below.yaml")).unwrap();
        let documents = read(&[folder], "shop").unwrap();
        let names: Vec<&str> = documents
            .iter()
            .map(|document| document.name.as_str())
            .collect();
        assert_eq!(names, ["one", "two"]);
        assert!(documents[1].place.ends_with("/b.yml, document 1"));
    }

    #[test]
    fn one_object_or_one_vip_described_twice_is_refused() {
        let twice = parse("a.yaml", &format!("{WEB}---\n{WEB}"), "shop").unwrap();
        assert_eq!(
            check_duplicates(&twice).unwrap_err().message,
            "app shop/web is described twice"
        );
        let vip = parse(
            "a.yaml",
            &format!("{WEB}---\n{}", WEB.replace("web", "api")),
            "shop",
        )
        .unwrap();
        assert_eq!(
            check_duplicates(&vip).unwrap_err().message,
            "VIP fd00:10::1 is described twice"
        );
    }

    #[test]
    fn an_invalid_document_is_refused_with_its_file_and_number() {
        for (text, want) in [
            ("a: [", "cannot read a.yaml"),
            ("kind: App", "is not served here"),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {}",
                "a.yaml, document 1: metadata.name is missing",
            ),
        ] {
            let error = parse("a.yaml", text, "shop").unwrap_err();
            assert!(error.message.contains(want), "{}", error.message);
        }
    }
}

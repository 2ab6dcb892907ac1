//! A folder on disk: written, moved, linked, deleted.

use std::fs::{self, File, rename};
use std::io::Write;
use std::os::unix::fs::symlink;

use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::source::object::Object;

fn service(name: &str, address: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: \"{address}\"}}\n"
    )
}

fn reported(batch: &Batch) -> Vec<String> {
    let text = |change: &Change| {
        let (sign, Object::Service(service)) = (match change {
            Change::Applied(object) => ('+', object),
            Change::Deleted(object) => ('-', object),
        }) else {
            panic!("{change:?}");
        };
        let name = service.metadata.name.as_deref().unwrap();
        let Some(spec) = &service.spec else {
            return format!("{sign}{name}");
        };
        format!("{sign}{name}={}", spec.cluster_ip.as_deref().unwrap())
    };
    batch.changes.iter().map(text).collect()
}

struct Case {
    root: TempDir,
    folder: std::path::PathBuf,
    manifests: Manifests,
}

impl Case {
    fn open(files: &[(&str, &str)]) -> (Self, Batch) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("manifests");
        fs::create_dir(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        let (manifests, batch) = Manifests::open(&folder).unwrap();
        (
            Self {
                root,
                folder,
                manifests,
            },
            batch,
        )
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).unwrap();
    }

    async fn next(&mut self) -> Batch {
        let next = timeout(Duration::from_secs(20), self.manifests.next());
        next.await.expect("no batch arrived")
    }

    /// The changes up to `last`, of all batches.
    async fn until(&mut self, last: &str) -> Vec<String> {
        let mut all = Vec::new();
        while all.last().is_none_or(|it| it != last) {
            all.extend(reported(&self.next().await));
        }
        all
    }
}

#[test]
fn a_missing_folder_is_refused_with_the_remedy() {
    let error = Manifests::open(Path::new("/nonexistent/m")).unwrap_err();
    assert!(
        error.to_string().contains("/nonexistent/m: create it"),
        "{error}"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(
        Manifests::open(file.path()),
        Err(ManifestsError::Folder { .. })
    ));
}

#[tokio::test]
async fn created_changed_and_deleted_files_are_reported() {
    let (mut case, first) = Case::open(&[
        ("a.yaml", &service("a", "1")),
        (".b.yaml", &service("b", "1")),
        ("c.txt", "c"),
    ]);
    assert_eq!(reported(&first), ["+a=1"]);
    case.write("b.yml", &service("b", "1"));
    assert_eq!(case.until("+b=1").await, ["+b=1"]);
    case.write("a.yaml", &service("a", "2"));
    assert_eq!(case.until("+a=2").await, ["+a=2"]);
    // As sed -i, vim and kubectl cp write files.
    case.write(".new", &service("a", "3"));
    rename(case.folder.join(".new"), case.folder.join("a.yaml")).unwrap();
    assert_eq!(case.until("+a=3").await, ["+a=3"]);
    fs::remove_file(case.folder.join("a.yaml")).unwrap();
    assert_eq!(case.until("-a").await, ["-a"]);
    rename(case.folder.join("b.yml"), case.folder.join("b.txt")).unwrap();
    assert_eq!(case.until("-b").await, ["-b"]);
}

#[tokio::test]
async fn an_ignored_description_is_read_again_when_it_becomes_valid() {
    let (mut case, first) = Case::open(&[
        ("a.yaml", &(service("a", "1") + &service("b", "1"))),
        ("b.yaml", &(service("b", "2") + &service("c", "1"))),
    ]);
    assert_eq!(reported(&first), ["+a=1", "+b=1", "+c=1"]);
    // Old enough not to be read at every look.
    tokio::time::sleep(Duration::from_millis(50)).await;
    case.write("z.yaml", &service("z", "1"));
    assert_eq!(case.until("+z=1").await, ["+z=1"]);
    fs::remove_file(case.folder.join("a.yaml")).unwrap();
    assert_eq!(reported(&case.next().await), ["-a", "+b=2"]);
    fs::remove_file(case.folder.join("b.yaml")).unwrap();
    assert_eq!(reported(&case.next().await), ["-b", "-c"]);
}

#[tokio::test]
async fn a_file_is_not_read_before_its_writer_closes_it() {
    let (mut case, _) = Case::open(&[("a.yaml", &(service("a", "1") + &service("b", "1")))]);
    let mut file = File::create(case.folder.join("a.yaml")).unwrap();
    file.write_all(service("a", "2").as_bytes()).unwrap();
    // Another change causes a look meanwhile.
    case.write("z.yaml", &service("z", "1"));
    assert_eq!(case.until("+z=1").await, ["+z=1"]);
    file.write_all(service("b", "2").as_bytes()).unwrap();
    drop(file);
    assert_eq!(case.until("+b=2").await, ["+a=2", "+b=2"]);
}

#[tokio::test]
async fn a_config_map_is_replaced_by_its_link() {
    let (mut case, _) = Case::open(&[]);
    let swap = |address: &str| {
        let data = case.folder.join(format!("..{address}"));
        fs::create_dir(&data).unwrap();
        fs::write(data.join("web.yaml"), service("web", address)).unwrap();
        symlink(&data, case.folder.join("..tmp")).unwrap();
        rename(case.folder.join("..tmp"), case.folder.join("..data")).unwrap();
    };
    swap("1");
    symlink("..data/web.yaml", case.folder.join("web.yaml")).unwrap();
    swap("2");
    let folder = case.folder.clone();
    let reported = case.until("+web=2").await;
    assert!(reported.len() <= 2, "{reported:?}");
    fs::remove_dir_all(folder.join("..2")).unwrap();
    let batch = case.next().await;
    assert!(
        matches!(&*batch.problems, [Problem::Unreadable { .. }]),
        "{batch:?}"
    );
    assert_eq!(batch.changes, []);
}

#[tokio::test]
async fn a_deleted_folder_keeps_its_objects_and_is_found_again() {
    let (mut case, _) = Case::open(&[("a.yaml", &service("a", "1"))]);
    rename(&case.folder, case.root.path().join("away")).unwrap();
    let batch = case.next().await;
    assert_eq!(batch.changes, []);
    assert!(
        matches!(&*batch.problems, [Problem::FolderGone { .. }]),
        "{batch:?}"
    );
    fs::create_dir(case.root.path().join("new")).unwrap();
    fs::write(case.root.path().join("new/a.yaml"), service("a", "2")).unwrap();
    rename(case.root.path().join("new"), &case.folder).unwrap();
    assert_eq!(case.until("+a=2").await, ["+a=2"]);
    case.write("a.yaml", &service("a", "3"));
    assert_eq!(case.until("+a=3").await, ["+a=3"]);
}

#[tokio::test]
async fn a_wait_that_is_dropped_repeatedly_still_ends() {
    let (mut case, _) = Case::open(&[]);
    case.write("a.yaml", &service("a", "1"));
    let batches = async {
        loop {
            if let Ok(batch) = timeout(Duration::from_micros(500), case.manifests.next()).await {
                return batch;
            }
        }
    };
    let batch = timeout(Duration::from_secs(20), batches)
        .await
        .expect("no batch arrived");
    assert_eq!(reported(&batch), ["+a=1"]);
}

#[tokio::test]
async fn a_burst_of_files_is_read_completely() {
    let (mut case, _) = Case::open(&[]);
    for n in 0..300 {
        case.write(&format!("{n}.yaml"), &service(&format!("s{n}"), "1"));
    }
    let (mut seen, mut batches) = (0, 0);
    while seen < 300 {
        seen += case.next().await.changes.len();
        batches += 1;
    }
    assert!(batches < 30, "{batches} batches");
}

/// A file of some megabytes: two of them are a part.
fn large(services: &[(&str, &str)]) -> String {
    let service = |(name, address): &(&str, &str)| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}"}},"spec":{{"clusterIP":"{address}"}}}}"#
        )
    };
    let services: String = services.iter().map(service).collect();
    services + &" ".repeat(5 << 20)
}

#[tokio::test]
async fn a_large_folder_is_reported_in_batches() {
    let (mut case, first) = Case::open(&[
        ("a.json", &large(&[("a", "1")])),
        ("b.json", &large(&[("b", "1")])),
        ("c.json", &large(&[("c", "1"), ("a", "2")])),
        ("d.json", &large(&[])),
        ("e.json", ""),
    ]);
    assert_eq!(
        (reported(&first), first.more),
        (vec!["+a=1".into(), "+b=1".into()], true)
    );
    let rest = case.next().await;
    assert_eq!((reported(&rest), rest.more), (vec!["+c=1".into()], true));
    assert!(
        matches!(&*rest.problems, [Problem::Duplicate { .. }]),
        "{rest:?}"
    );
    assert_eq!(case.next().await, Batch::default(), "that was all");
    case.write("e.json", &large(&[("e", "1")]));
    assert_eq!(case.until("+e=1").await, ["+e=1"]);
}

#[test]
fn a_look_in_batches_reports_the_content_of_the_files() {
    let root = tempfile::tempdir().unwrap();
    let write = |name, services: &[_]| fs::write(root.path().join(name), large(services)).unwrap();
    write("a.json", &[("moves", "1"), ("stays", "1")]);
    write("b.json", &[("b", "1")]);
    let (mut looker, look) = Looker::open(root.path()).unwrap();
    assert!(!look.batch.more);
    write("a.json", &[("stays", "1")]);
    write("b.json", &[("b", "2")]);
    write("c.json", &[("moves", "1"), ("stays", "2")]);
    let [first, last] = [looker.look().batch, looker.look().batch];
    assert_eq!(
        (reported(&first), first.more),
        (vec!["+b=2".into(), "-moves".into()], true)
    );
    assert_eq!(
        (reported(&last), last.more),
        (vec!["+moves=1".into()], false)
    );
}

fn anonymous_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kib.parse::<u64>().unwrap() / 1024
}

fn slice(name: &str, first: usize) -> String {
    let endpoint = |n: usize| {
        format!(
            r#"{{"addresses":["10.{}.{}.{}"],"conditions":{{"ready":true}},"nodeName":"node-{}"}}"#,
            n >> 16 & 255,
            n >> 8 & 255,
            n & 255,
            n % 100
        )
    };
    let endpoints = (first..first + 10).map(endpoint).collect::<Vec<_>>();
    format!(
        r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4","metadata":{{"name":"{name}-abcde","labels":{{"kubernetes.io/service-name":"{name}"}}}},"endpoints":[{}],"ports":[{{"port":80}}]}}"#,
        endpoints.join(",")
    )
}

/// Run with `--ignored --release --nocapture`, alone; prints the memory that Services of a cluster with a million endpoints leave.
#[tokio::test]
#[ignore = "a measurement"]
async fn a_hundred_thousand_services_are_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    for part in 0..1_000 {
        let objects = (part * 100..(part + 1) * 100).flat_map(|n| {
            let service = format!(
                r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"svc-{n}"}},"spec":{{"clusterIP":"10.96.0.1"}}}}"#
            );
            [service, slice(&format!("svc-{n}"), n * 10)]
        });
        let text = objects.collect::<Vec<_>>().join("\n");
        fs::write(folder.path().join(format!("{part}.json")), text).unwrap();
    }
    let before = anonymous_mib();
    let (mut manifests, mut batch) = Manifests::open(folder.path()).unwrap();
    let (mut objects, mut most) = (batch.changes.len(), anonymous_mib());
    while batch.more {
        batch = manifests.next().await;
        objects += batch.changes.len();
        most = most.max(anonymous_mib());
    }
    assert_eq!(objects, 200_000);
    drop(batch);
    let after = anonymous_mib();
    println!("MiB anonymous: {before} before, {most} at most, {after} after");
}

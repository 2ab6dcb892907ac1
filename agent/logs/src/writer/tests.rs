//! The writer with real FIFOs, in a folder of its own.

use std::io::Write as _;
use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::folder::{Meta, Output, tail};
use crate::lines::Selection;
use crate::reader::{Next, Reader};

const TIMEOUT: Duration = Duration::from_secs(30);

fn limits() -> Limits {
    Limits {
        pod_bytes: 400 << 10,
        ..Limits::default()
    }
}

fn begin_pod(folder: &Folder, uid: &str) -> Output {
    let meta = Meta {
        namespace: "shop".into(),
        name: uid.into(),
        app: "web".into(),
    };
    folder.begin(uid, &meta, false).unwrap()
}

fn text(folder: &Folder, uid: &str) -> String {
    tail(folder, uid, u64::MAX).unwrap()
}

/// Runs a writer as long as `live` takes, and drops it in any state.
async fn with_writer<T>(folder: &Folder, limits: Limits, live: impl Future<Output = T>) -> T {
    tokio::select! {
        end = run(folder.clone(), limits) => panic!("the writer ended: {end:?}"),
        done = timeout(TIMEOUT, live) => done.expect("the log is written in time"),
    }
}

/// Resolves when this is the text of a log.
async fn until(folder: &Folder, uid: &str, want: &str) {
    while text(folder, uid) != want {
        sleep(Duration::from_millis(1)).await;
    }
}

fn folder() -> (tempfile::TempDir, Folder) {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::new(dir.path().to_owned());
    (dir, folder)
}

#[tokio::test]
async fn output_of_a_run_that_begins_before_or_after_the_writer_is_in_its_log() {
    let (_dir, folder) = folder();
    let mut before = begin_pod(&folder, "before");
    before.stdout.write_all(b"early\n").unwrap();
    with_writer(&folder, limits(), async {
        until(&folder, "before", "early\n").await;
        let mut after = begin_pod(&folder, "after");
        after.stderr.write_all(b"oops\n").unwrap();
        until(&folder, "after", "oops\n").await;
        drop(after);
        folder.ended("after").await;
        assert!(!folder.has_ended(&folder.last("before").unwrap().unwrap()));
    })
    .await;
}

#[tokio::test]
async fn output_of_a_process_that_has_ended_before_the_writer_comes_is_kept_for_it() {
    let (_dir, folder) = folder();
    let mut output = begin_pod(&folder, "u1");
    output.stdout.write_all(b"short\n").unwrap();
    let release = tokio::spawn(output.release());
    with_writer(&folder, limits(), folder.ended("u1")).await;
    assert_eq!(text(&folder, "u1"), "short\n");
    release.await.unwrap();
}

#[tokio::test]
async fn a_pod_writes_on_while_there_is_no_writer_and_nothing_is_lost() {
    let (_dir, folder) = folder();
    let mut output = begin_pod(&folder, "u1");
    output.stdout.write_all(b"one\nhal").unwrap();
    with_writer(&folder, limits(), until(&folder, "u1", "one\nhal")).await;
    // A killed writer: a pipe without a reader would end the pod here.
    output.stdout.write_all(b"f\ntwo\n").unwrap();
    with_writer(&folder, limits(), until(&folder, "u1", "one\nhalf\ntwo\n")).await;
    drop(output);
    with_writer(&folder, limits(), folder.ended("u1")).await;
    assert_eq!(text(&folder, "u1"), "one\nhalf\ntwo\n");
}

#[tokio::test]
async fn a_pod_that_writes_without_end_keeps_its_newest_lines_and_the_others_theirs() {
    let (dir, folder) = folder();
    let (mut noisy, mut quiet) = (begin_pod(&folder, "noisy"), begin_pod(&folder, "quiet"));
    let lines: Vec<String> = (0..20_000)
        .map(|number| format!("line {number}\n"))
        .collect();
    let all = lines.concat();
    let input = all.clone();
    let writing = std::thread::spawn(move || {
        noisy.stdout.write_all(input.as_bytes()).unwrap();
        drop(noisy);
    });
    with_writer(&folder, limits(), async {
        quiet.stdout.write_all(b"kept\n").unwrap();
        until(&folder, "quiet", "kept\n").await;
        folder.ended("noisy").await;
    })
    .await;
    writing.join().unwrap();
    let text = text(&folder, "noisy");
    assert!(text.ends_with("line 19998\nline 19999\n"));
    assert!(!text.contains("line 0\n"), "the oldest lines are gone");
    let (_first, kept) = text.split_once('\n').unwrap();
    assert!(all.ends_with(kept), "no line in between is missing");
    let bytes: u64 = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes <= limits().pod_bytes + (8 << 10), "{bytes}");
}

#[tokio::test]
async fn a_run_of_before_a_reboot_is_over() {
    let (_dir, folder) = folder();
    // No process has its FIFOs open.
    drop(begin_pod(&folder, "u1"));
    with_writer(&folder, limits(), folder.ended("u1")).await;
    assert_eq!(text(&folder, "u1"), "");
}

#[tokio::test]
async fn ended_runs_above_the_limit_are_removed_and_a_follower_sees_the_end() {
    let (_dir, folder) = folder();
    let limits = Limits {
        ended_runs: 1,
        ..limits()
    };
    for uid in ["a", "b", "c"] {
        let mut output = begin_pod(&folder, uid);
        output.stdout.write_all(uid.as_bytes()).unwrap();
        let run = folder.last(uid).unwrap().unwrap();
        with_writer(&folder, limits, async {
            until(&folder, uid, uid).await;
            let mut reader =
                Reader::open(folder.clone(), run, &Selection::default(), true).unwrap();
            assert_eq!(reader.read().unwrap(), Next::Wait);
            drop(output);
            folder.ended(uid).await;
            assert_eq!(reader.read().unwrap(), Next::Text(uid.as_bytes().to_vec()));
            assert_eq!(reader.read().unwrap(), Next::End);
        })
        .await;
    }
    // At its start, a writer removes what is too much.
    with_writer(&folder, limits, async {
        while folder.runs().unwrap().len() > 1 {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(folder.last("c").unwrap().unwrap().uid, "c");
}

#[tokio::test]
async fn pods_that_begin_together_are_all_noticed() {
    let (_dir, folder) = folder();
    let first = begin_pod(&folder, "first");
    with_writer(&folder, limits(), async {
        first.release().await;
        // More than one read of the events returns; the writer has no turn meanwhile.
        let uids: Vec<String> = (0..300)
            .map(|number| format!("a-pod-with-a-long-uid-{number}"))
            .collect();
        let outputs: Vec<Output> = uids.iter().map(|uid| begin_pod(&folder, uid)).collect();
        for output in outputs {
            output.release().await;
        }
        for uid in &uids {
            folder.ended(uid).await;
        }
    })
    .await;
}

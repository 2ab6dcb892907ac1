//! The logs of the simulated node: of one app, whose pod writes more than is kept.

use dormouse_fleet::client::{LogLink, connect, endpoint};
use dormouse_fleet::proto::{LogChunk, LogRun};
use tokio::sync::mpsc;

/// The app that fills its log.
const APP: &str = "app-12";

/// Offers the logs until the test ends.
pub(super) async fn offer() {
    let channel = connect(endpoint("http://[::1]:7443").unwrap())
        .await
        .unwrap();
    let mut link = LogLink::open(channel, "n1".to_owned()).await.unwrap();
    tokio::spawn(async move {
        while let Ok(request) = link.receive().await {
            let (chunks, queue) = mpsc::channel(1);
            let sent = link.answer(queue);
            let runs = if request.app == APP {
                vec![run()]
            } else {
                Vec::new()
            };
            let chunk = LogChunk {
                id: request.id,
                runs,
                ..LogChunk::default()
            };
            chunks.send(chunk).await.unwrap();
            drop(chunks);
            tokio::spawn(sent);
        }
    });
}

/// A run that has written 40 MiB for four seconds.
fn run() -> LogRun {
    LogRun {
        name: format!("{APP}-1"),
        uid: "u1".to_owned(),
        bytes: 10 << 20,
        removed_bytes: 30 << 20,
        age_ms: Some(4_000),
        ..LogRun::default()
    }
}

//! More connections than the server serves at a time.

use std::time::Duration;

use dormouse_store::{Store, server::Options};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::harness::{Served, within};

/// Time in which a server without a limit answers; a longer one does not make the test wrong.
const UNANSWERED: Duration = Duration::from_millis(200);

async fn request(served: &Served) -> TcpStream {
    let address = served.endpoint.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /livez HTTP/1.1\r\nHost: store\r\n\r\n";
    stream.write_all(request).await.unwrap();
    stream
}

async fn answered(stream: &mut TcpStream) -> bool {
    stream.read_u8().await.unwrap() == b'H'
}

#[tokio::test]
async fn a_connection_beyond_the_limit_is_served_when_another_one_ends() {
    let options = Options {
        connections_max: 2,
        ..Options::default()
    };
    let served = Served::with_options(Store::new(), options).await;
    let (mut first, mut second) = (request(&served).await, request(&served).await);
    assert!(within(answered(&mut first)).await);
    assert!(within(answered(&mut second)).await);
    let mut third = request(&served).await;
    let early = tokio::time::timeout(UNANSWERED, answered(&mut third)).await;
    assert!(early.is_err(), "a third connection is served");
    drop(first);
    assert!(within(answered(&mut third)).await);
    drop((second, third));
    served.stop().await;
}

//! What has to work for each role of the control plane to be ready.

use std::net::SocketAddr;

use dormouse_activator::link;
use dormouse_apps::epoch;
use dormouse_cluster::{Channel, Client};
use dormouse_scheduler::SchedulerClient;
use dormouse_scheduler::proto::CheckRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::readiness::Outcome;

/// The beginning of an HTTP/2 connection: the preface, and an empty SETTINGS frame (RFC 9113, 3.4 and 6.5).
const HTTP2_BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Bytes of the header of an HTTP/2 frame; the fourth is its type.
const FRAME_HEADER: usize = 9;
const SETTINGS: u8 = 4;

/// The store answers a read, and reports nothing for which it refuses writes.
pub(super) async fn store(client: Client) -> Outcome {
    let faults = async {
        client.range(epoch::EPOCH_KEY, 0).await?;
        client.faults().await
    };
    let faults = faults.await.map_err(|error| error.to_string())?;
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join(", "))
    }
}

/// The loop of the scheduler runs, and knows all nodes and pods.
pub(super) async fn scheduler(channel: Channel) -> Outcome {
    let mut client = SchedulerClient::new(channel);
    let checked = client.check(CheckRequest {}).await;
    checked
        .map(drop)
        .map_err(|status| status.message().to_owned())
}

/// The loop of the apps controller runs.
pub(super) async fn apps(apps: dormouse_apps::Handle) -> Outcome {
    if apps.check().await {
        Ok(())
    } else {
        Err("the apps controller has ended".to_owned())
    }
}

/// An activator is attached; one in this process also listens and has all routes.
pub(super) fn activator(hub: &link::Hub, local: Option<&dormouse_activator::Handle>) -> Outcome {
    if let Some(reason) = local.and_then(dormouse_activator::Handle::unready) {
        return Err(reason.to_owned());
    }
    if hub.streams() == 0 {
        return Err("no activator is attached".to_owned());
    }
    Ok(())
}

/// Nodes can connect, and the store confirms that this control plane is the newest.
pub(super) async fn fleet(fleet: dormouse_fleet::Handle, address: SocketAddr) -> Outcome {
    speaks_http2(address)
        .await
        .map_err(|error| format!("nodes cannot connect to {address}: {error}"))?;
    if !fleet.is_confirmed() {
        return Err("the store does not confirm the epoch: nodes get no leases".to_owned());
    }
    Ok(())
}

/// Whether a server at this address begins an HTTP/2 connection.
async fn speaks_http2(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(HTTP2_BEGIN).await?;
    let mut header = [0; FRAME_HEADER];
    stream.read_exact(&mut header).await?;
    if header[3] == SETTINGS {
        Ok(())
    } else {
        Err(std::io::Error::other("the server does not speak HTTP/2"))
    }
}

#[cfg(test)]
mod tests {
    use dormouse_fleet::proto::NodeConfig;
    use dormouse_fleet::{Boottime, Incoming, ServerConfig};
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::readiness::Checks;

    async fn checked(fleet: &dormouse_fleet::Handle, address: SocketAddr) -> Outcome {
        let mut checks = Checks::default();
        let fleet = fleet.clone();
        checks.add("fleet", move || super::fleet(fleet.clone(), address));
        checks.run(|_| true).await.remove(0).1
    }

    #[tokio::test]
    async fn the_fleet_is_ready_while_its_listener_is_served_and_the_epoch_is_confirmed() {
        let shutdown = CancellationToken::new();
        let config = ServerConfig::new(1, NodeConfig::default());
        let (fleet, _events) = dormouse_fleet::start(config, shutdown.clone());
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let silent = checked(&fleet, address).await;
        assert_eq!(silent, Err("no answer within 2 s".to_owned()));

        let incoming = Incoming::new(listener, 10);
        tokio::spawn(dormouse_fleet::serve(
            incoming,
            fleet.clone(),
            shutdown.clone(),
        ));
        let unconfirmed = checked(&fleet, address).await.unwrap_err();
        assert!(unconfirmed.contains("nodes get no leases"), "{unconfirmed}");
        fleet.confirmed(Boottime::now());
        assert_eq!(checked(&fleet, address).await, Ok(()));

        let free = TcpListener::bind("[::1]:0").await.unwrap().local_addr();
        let refused = checked(&fleet, free.unwrap()).await.unwrap_err();
        assert!(refused.contains("nodes cannot connect"), "{refused}");
    }
}

//! The capabilities' arguments in `runtimeConfig`: applied, or refused by name; never ignored.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::conformance::call::Judge as _;
use crate::conformance::check::{Outcome, holds, same};
use crate::conformance::kernel::Link;
use dormouse_rig::Netns;

use crate::conformance::run::Versions::{All, Newest};
use crate::conformance::run::{Case, case};
use crate::conformance::stage::{Stage, address};
use crate::node::Node;

pub(crate) const CASES: &[Case] = &[
    case("capabilities/mac", Newest, mac),
    case("capabilities/mac that is none", Newest, bad_mac),
    case("capabilities/bandwidth out of a pod", Newest, egress),
    case("capabilities/bandwidth into a pod", Newest, ingress),
    case("capabilities/bandwidth that is none", Newest, bad_bandwidth),
    case(
        "capabilities/portMappings without an entry",
        Newest,
        no_ports,
    ),
    case("capabilities/unknown ones are refused", Newest, unknown),
    case(
        "capabilities/unknown keys beside them are ignored",
        All,
        unread,
    ),
];

const MAC: &str = "02:00:5e:10:20:30";

fn mac(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let result = stage.add("a", &pod).runtime("mac", &json!(MAC)).ok()?;
    same(
        "the result's MAC",
        &result["interfaces"][2]["mac"],
        &json!(MAC),
    )?;
    same(
        "the pod's MAC",
        &Link::find(&pod, "eth0")?.mac().as_str(),
        &MAC,
    )?;
    stage.check("a", &pod, &result).silent()
}

fn bad_mac(stage: &mut Stage<'_>) -> Outcome {
    let before = stage.settled()?;
    // Too short, not hexadecimal, multicast, all zero.
    for bad in [
        "02:00:5e:10:20",
        "02:00:5e:10:20:zz",
        "33:33:00:00:00:01",
        "00:00:00:00:00:00",
    ] {
        let pod = stage.pod("a");
        let call = stage.add("a", &pod).runtime("mac", &json!(bad));
        let error = call.fails().map_err(|seen| format!("{bad}: {seen}"))?;
        let names = error.to_string().contains(bad);
        holds(names, || {
            format!("the error does not name `{bad}`: {error}")
        })?;
        stage.world().is_as(&before)?;
    }
    Ok(())
}

/// Bits a second, and bits at once.
const RATE: u64 = 8_000_000;
const BURST: u64 = 800_000;
/// Takes 1.9 s at that rate, and next to nothing without one.
const BYTES: usize = 2_000_000;
const PORT: u16 = 8081;

/// How long it takes to send over a fresh connection.
fn transfer(from: &Netns, to: &Netns, at: IpAddr) -> Duration {
    let listener = to.inside(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)));
    let at = SocketAddr::new(at, PORT);
    let mut out = from.inside(|| TcpStream::connect_timeout(&at, Duration::from_secs(5)));
    let (mut into, _) = listener.accept().unwrap();
    into.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let begin = Instant::now();
    let sender = std::thread::spawn(move || out.write_all(&vec![0; BYTES]).unwrap());
    let mut bytes = vec![0; BYTES];
    into.read_exact(&mut bytes).unwrap();
    sender.join().unwrap();
    begin.elapsed()
}

fn is_shaped(took: Duration) -> Outcome {
    let wanted = Duration::from_millis(1_200)..Duration::from_secs(8);
    holds(wanted.contains(&took), || {
        format!("{BYTES} bytes at {RATE} bit/s took {took:?}")
    })
}

fn egress(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let limits = json!({"egressRate": RATE, "egressBurst": BURST});
    stage.add("a", &pod).runtime("bandwidth", &limits).ok()?;
    is_shaped(transfer(&pod, stage.node.netns(), Node::address().into()))
}

fn ingress(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let limits = json!({"ingressRate": RATE, "ingressBurst": BURST});
    let result = stage.add("a", &pod).runtime("bandwidth", &limits).ok()?;
    is_shaped(transfer(stage.node.netns(), &pod, address(&result)?))
}

fn bad_bandwidth(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.settled()?);
    for bad in [json!({"ingressRate": -1}), json!({"egressRate": "fast"})] {
        let call = stage.add("a", &pod).runtime("bandwidth", &bad);
        let error = call.fails().map_err(|seen| format!("{bad}: {seen}"))?;
        let names = error.to_string().contains("bandwidth");
        holds(names, || format!("the error does not name it: {error}"))?;
    }
    stage.world().is_as(&before)
}

fn no_ports(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    stage
        .add("a", &pod)
        .runtime("portMappings", &json!([]))
        .ok()
        .map(drop)
}

/// A runtime passes only what a plugin declared: what is unknown to this release was requested, and is not done.
fn unknown(stage: &mut Stage<'_>) -> Outcome {
    let (pod, before) = (stage.pod("a"), stage.world());
    let add = stage.add("a", &pod).runtime("x-vendor", &json!({"a": [1]}));
    add.fails_with(2, &["runtimeConfig.x-vendor", r#"{"a":[1]}"#])?;
    stage.world().is_as(&before)
}

fn unread(stage: &mut Stage<'_>) -> Outcome {
    let pod = stage.pod("a");
    let more = json!({"x-vendor": true, "capabilities": {"ips": true}, "args": {"cni": {"x": 1}}});
    stage.add("a", &pod).conf(&more).ok().map(drop)
}

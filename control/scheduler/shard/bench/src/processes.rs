//! Members as processes of this machine, which bind the pods of a store: the CPU time of each, from /proc.

mod member;

use std::collections::BTreeSet;
use std::pin::pin;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dormouse_cluster::client::{KeyRange, Previous};
use dormouse_cluster::{Client, Object};
use dormouse_rows::process::Process;
use dormouse_store::{Store, server};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use member::Role;
pub(crate) use member::{Options, run};

use crate::objects;

/// Time after which a run is stuck.
const TIMEOUT: Duration = Duration::from_mins(10);
/// Writes of objects in flight.
const WRITES: usize = 64;

/// The cluster and its members.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) shards: usize,
    pub(crate) relays: usize,
    pub(crate) nodes: usize,
    pub(crate) window: usize,
}

/// The cost of a pod.
pub(crate) struct Cost {
    pub(crate) time: Duration,
    pub(crate) leader: Duration,
    pub(crate) relays: Duration,
    pub(crate) shard: Duration,
    pub(crate) shards: Duration,
}

/// A member's process. It is killed when this is dropped.
struct Running {
    role: Role,
    child: Child,
}

impl Running {
    fn start(role: Role, number: usize, store: &str, shape: Shape) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let (name, window) = (format!("m{number}"), shape.window.to_string());
        let child = Command::new(program)
            .args(["member", role.name(), "--name", &name])
            .args(["--store", store, "--window", &window])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a member")?;
        Ok(Self { role, child })
    }

    fn cpu(&self) -> Result<Duration> {
        let id = self.child.id().context("a member has ended")?;
        Process(id).cpu()
    }
}

/// Binds one pod, so that all members have what they need, then the pods that are measured.
#[tokio::main]
pub(crate) async fn measure(shape: Shape, pods: usize) -> Result<Cost> {
    tokio::time::timeout(TIMEOUT, bind(shape, pods))
        .await
        .context("the members bind no pods any more")?
}

async fn bind(shape: Shape, pods: usize) -> Result<Cost> {
    let listener = TcpListener::bind("[::1]:0").await?;
    let store = format!("http://{}", listener.local_addr()?);
    let shutdown = CancellationToken::new();
    let _ends = shutdown.clone().drop_guard();
    tokio::spawn(server::serve(listener, Store::new(), shutdown));
    let client = Client::connect(&store).await?;
    let nodes = (0..shape.nodes).map(|index| objects::node(index).map(|node| Node::clone(&node)));
    create(&client, nodes).await?;
    let bound = bindings(&client).await?;
    let mut bound = pin!(bound);
    let members = members(shape, &store)?;
    create(&client, [objects::pod(0).map(|pod| Pod::clone(&pod))]).await?;
    wait(&mut bound, 1).await?;
    let before = cpus(&members)?;
    let began = Instant::now();
    let more = (1..=pods).map(|index| objects::pod(index).map(|pod| Pod::clone(&pod)));
    let (created, waited) = tokio::join!(create(&client, more), wait(&mut bound, pods));
    created.and(waited)?;
    let took = began.elapsed();
    let spent = cpus(&members)?.into_iter().zip(before);
    let spent = spent.map(|((role, after), (_, before))| (role, after.saturating_sub(before)));
    cost(took, &spent.collect::<Vec<_>>(), pods)
}

/// The processes, of which the leader is the last.
fn members(shape: Shape, store: &str) -> Result<Vec<Running>> {
    let of = |role, len| (0..len).map(move |number| (role, number));
    let all = of(Role::Shard, shape.shards);
    let all = all.chain(of(Role::Relay, shape.relays));
    let all = all.chain(of(Role::Leader, 1));
    all.map(|(role, number)| Running::start(role, number, store, shape))
        .collect()
}

fn cpus(members: &[Running]) -> Result<Vec<(Role, Duration)>> {
    let cpu = |member: &Running| Ok((member.role, member.cpu()?));
    members.iter().map(cpu).collect()
}

fn cost(took: Duration, spent: &[(Role, Duration)], pods: usize) -> Result<Cost> {
    let pods = u32::try_from(pods).context("too many pods")?;
    let of = |role| {
        let of_role = spent.iter().filter(move |(one, _)| *one == role);
        of_role.map(move |(_, cpu)| *cpu / pods)
    };
    Ok(Cost {
        time: took / pods,
        leader: of(Role::Leader).sum(),
        relays: of(Role::Relay).sum(),
        shard: of(Role::Shard).max().unwrap_or_default(),
        shards: of(Role::Shard).sum(),
    })
}

async fn create<K: Object>(
    client: &Client,
    objects: impl IntoIterator<Item = Result<K>>,
) -> Result<()> {
    stream::iter(objects)
        .try_for_each_concurrent(WRITES, async |object| {
            client.insert(&object).await.map(drop).map_err(Into::into)
        })
        .await
}

/// The names of pods that are bound from now on, each as often as it is written.
async fn bindings(client: &Client) -> Result<impl Stream<Item = Result<String>> + use<>> {
    let revision = client.list::<Pod>(None).await?.revision;
    let range = KeyRange::of_prefix(Pod::PREFIX);
    let watch = client.watch(&range, revision, Previous::LeftOut).await?;
    let names = watch.map(|events| {
        let events = events?.into_iter().filter_map(|event| event.value);
        let pods = events.filter_map(|value| serde_json::from_slice::<Pod>(&value).ok());
        let bound = pods.filter(|pod| {
            let spec = pod.spec.as_ref();
            spec.is_some_and(|spec| spec.node_name.is_some())
        });
        let names: Vec<_> = bound.filter_map(|pod| pod.metadata.name).map(Ok).collect();
        anyhow::Ok(stream::iter(names))
    });
    Ok(names.try_flatten())
}

/// Waits until so many pods more are bound.
async fn wait(bound: &mut (impl Stream<Item = Result<String>> + Unpin), pods: usize) -> Result<()> {
    let mut names = BTreeSet::new();
    while names.len() < pods {
        match bound.next().await {
            Some(name) => names.insert(name?),
            None => bail!("the watch of the store ended"),
        };
    }
    Ok(())
}

//! Health, version, metrics, gRPC health and reflection, on the port of the gRPC services.

use dormouse_store::alarm::Alarm;
use dormouse_store::proto::etcdserverpb::{AlarmType, alarm_request::AlarmAction};
use dormouse_store_checker::http;
use prost::Message;
use prost_reflect::DescriptorPool;
use prost_types::FileDescriptorProto;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::harness::{Served, within};

/// [`get_at`] on the client port.
async fn get(served: &Served, path: &str) -> (u16, String) {
    get_at(served.endpoint.trim_start_matches("http://"), path).await
}

/// The code and the body of the response to a GET.
pub(crate) async fn get_at(address: &str, path: &str) -> (u16, String) {
    within(http::get(address, path)).await.unwrap()
}

#[tokio::test]
async fn a_healthy_store_passes_every_check() {
    let served = Served::start().await;
    let healthy = r#"{"health":"true","reason":""}"#;
    assert_eq!(get(&served, "/health").await, (200, healthy.into()));
    assert_eq!(get(&served, "/livez").await, (200, "ok\n".into()));
    let (code, lines) = get(&served, "/readyz?verbose").await;
    assert_eq!(code, 200);
    let names = ["data_corruption", "serializable_read", "linearizable_read"];
    for name in names {
        assert!(lines.contains(&format!("[+]{name} ok\n")), "{lines}");
        let path = format!("/readyz/{name}");
        assert_eq!(get(&served, &path).await, (200, "ok\n".into()));
    }
    assert!(get(&served, "/version").await.1.contains("etcdserver"));
    served.stop().await;
}

#[tokio::test]
async fn an_alarm_makes_the_store_unhealthy_unless_it_is_excluded() {
    let served = Served::start().await;
    let corrupt = Alarm {
        kind: AlarmType::Corrupt.into(),
        member_id: 0,
    };
    let raised = served.store.alarm(AlarmAction::Activate, corrupt).await;
    raised.unwrap();
    let (code, body) = get(&served, "/health").await;
    assert_eq!(code, 503);
    assert_eq!(body, r#"{"health":"false","reason":"ALARM CORRUPT"}"#);
    assert_eq!(get(&served, "/health?exclude=CORRUPT").await.0, 200);
    let (code, lines) = get(&served, "/readyz").await;
    assert_eq!(code, 503);
    let failed = "[-]data_corruption failed: alarm activated: CORRUPT\n";
    assert!(lines.contains(failed), "{lines}");
    let excluded = "/readyz?exclude=data_corruption&exclude=non_learner";
    assert_eq!(get(&served, excluded).await.0, 200);
    assert_eq!(get(&served, "/livez").await.0, 200);
    served.stop().await;
}

#[tokio::test]
async fn the_metrics_have_the_names_and_sizes_of_etcds_dashboards() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.put("key", vec![b'v'; 100_000], None).await.unwrap();
    let (code, page) = get(&served, "/metrics").await;
    assert_eq!(code, 200);
    assert!(page.contains("etcd_mvcc_put_total 1\n"), "{page}");
    let size = page
        .lines()
        .find_map(|line| line.strip_prefix("etcd_mvcc_db_total_size_in_bytes "));
    let size: u64 = size.unwrap().parse().unwrap();
    assert_eq!(size, served.store.bytes());
    let quota = format!(
        "etcd_server_quota_backend_bytes {}\n",
        served.store.limits().quota_bytes
    );
    assert!(page.contains(&quota), "{page}");
    served.stop().await;
}

#[tokio::test]
async fn grpc_health_and_reflection_answer() {
    let served = Served::start().await;
    let endpoint = Endpoint::from_shared(served.endpoint.clone()).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let mut health = HealthClient::new(channel.clone());
    let answer = health.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(answer.into_inner().status, 1, "SERVING");
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut reflection = ServerReflectionClient::new(channel);
    let answers = reflection.server_reflection_info(futures::stream::iter([list]));
    let mut answers = answers.await.unwrap().into_inner();
    let answer = within(answers.message()).await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else {
        panic!("no list of services: {answer:?}");
    };
    let names: Vec<String> = services.service.into_iter().map(|s| s.name).collect();
    for name in ["etcdserverpb.KV", "v3lockpb.Lock", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
    served.stop().await;
}

/// The files of a reflection's answer.
async fn files(
    reflection: &mut ServerReflectionClient<Channel>,
    asked: MessageRequest,
) -> Vec<FileDescriptorProto> {
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(asked),
    };
    let answers = reflection.server_reflection_info(futures::stream::iter([ask]));
    let mut answers = answers.await.unwrap().into_inner();
    let answer = within(answers.message()).await.unwrap().unwrap();
    let Some(MessageResponse::FileDescriptorResponse(files)) = answer.message_response else {
        panic!("no file: {answer:?}");
    };
    let files = files.file_descriptor_proto.into_iter();
    files
        .map(|file| FileDescriptorProto::decode(&file[..]).unwrap())
        .collect()
}

#[tokio::test]
async fn a_client_without_the_proto_files_gets_them_by_reflection() {
    let served = Served::start().await;
    let endpoint = Endpoint::from_shared(served.endpoint.clone()).unwrap();
    let mut reflection = ServerReflectionClient::new(endpoint.connect().await.unwrap());
    let mut pool = DescriptorPool::new();
    let services = ["KV", "Watch", "Lease", "Cluster", "Maintenance", "Auth"]
        .map(|service| format!("etcdserverpb.{service}"));
    for service in &services {
        let asked = MessageRequest::FileContainingSymbol(service.clone());
        let mut pending = files(&mut reflection, asked).await;
        // A file is added after those that it imports.
        while let Some(file) = pending.pop() {
            let mut imports = file.dependency.iter();
            let missing = imports.find(|name| pool.get_file_by_name(name).is_none());
            match missing.cloned() {
                None if pool.get_file_by_name(file.name()).is_some() => {}
                None => pool.add_file_descriptor_proto(file).unwrap(),
                Some(missing) => {
                    let asked = MessageRequest::FileByFilename(missing);
                    pending.push(file);
                    pending.extend(files(&mut reflection, asked).await);
                }
            }
        }
    }
    for service in &services {
        let service = pool.get_service_by_name(service).unwrap();
        assert!(service.methods().len() > 0, "{service:?}");
    }
    let put = pool
        .get_message_by_name("etcdserverpb.PutResponse")
        .unwrap();
    let prev_kv = put.get_field_by_name("prev_kv").unwrap();
    assert_eq!(
        prev_kv.kind().as_message().unwrap().full_name(),
        "mvccpb.KeyValue"
    );
    served.stop().await;
}

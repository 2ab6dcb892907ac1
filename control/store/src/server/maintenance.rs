//! etcd's Maintenance service: status, alarms, hashes and snapshots of a cluster of one member.

mod downgrade;
mod snapshot;

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use super::{API_VERSION, session::Session};
use crate::{
    Store,
    alarm::Alarm,
    proto::etcdserverpb::{
        AlarmMember, AlarmRequest, AlarmResponse, AlarmType, DefragmentRequest, DefragmentResponse,
        DowngradeInfo, DowngradeRequest, DowngradeResponse, HashKvRequest, HashKvResponse,
        HashRequest, HashResponse, MoveLeaderRequest, MoveLeaderResponse, SnapshotRequest,
        SnapshotResponse, StatusRequest, StatusResponse, alarm_request::AlarmAction,
        maintenance_server::Maintenance,
    },
};

#[derive(Debug)]
pub(super) struct Service {
    store: Store,
}

impl Service {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }
}

#[tonic::async_trait]
impl Maintenance for Service {
    /// An action outside etcd's enumeration is refused; etcd 3.6 itself crashes on it.
    async fn alarm(
        &self,
        request: Request<AlarmRequest>,
    ) -> Result<Response<AlarmResponse>, Status> {
        let session = Session::new(&self.store, &request);
        let request = request.get_ref();
        let unknown = "etcdserver: the alarm action is none of GET, ACTIVATE and DEACTIVATE";
        let action = AlarmAction::try_from(request.action)
            .map_err(|_unknown| Status::new(Code::InvalidArgument, unknown))?;
        if action != AlarmAction::Get {
            session.check_root()?;
        }
        let alarm = Alarm {
            kind: request.alarm,
            member_id: request.member_id,
        };
        let (alarms, revision) = self.store.alarm(action, alarm).await?;
        let alarms = alarms.into_iter().map(|alarm| AlarmMember {
            member_id: alarm.member_id,
            alarm: alarm.kind,
        });
        Ok(Response::new(AlarmResponse {
            header: Some(self.store.header(revision)),
            alarms: alarms.collect(),
        }))
    }

    async fn status(
        &self,
        _request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let (alarms, revision) = self.store.alarms(AlarmType::None.into());
        let failure = self.store.journal_failure();
        let header = self.store.header(revision);
        let bytes = i64::try_from(self.store.bytes()).unwrap_or(i64::MAX);
        let in_use = i64::try_from(self.store.bytes_in_use()).unwrap_or(i64::MAX);
        let quota = self.store.limits().quota_bytes;
        Ok(Response::new(StatusResponse {
            version: API_VERSION.into(),
            db_size: bytes,
            db_size_in_use: in_use,
            db_size_quota: i64::try_from(quota).unwrap_or(i64::MAX),
            leader: header.member_id,
            raft_index: header.revision.unsigned_abs(),
            raft_applied_index: header.revision.unsigned_abs(),
            raft_term: header.raft_term,
            errors: alarms.iter().map(Alarm::to_string).chain(failure).collect(),
            downgrade_info: Some(DowngradeInfo::default()),
            header: Some(header),
            ..StatusResponse::default()
        }))
    }

    /// The store returns memory when versions are compacted: there is nothing left to do.
    async fn defragment(
        &self,
        _request: Request<DefragmentRequest>,
    ) -> Result<Response<DefragmentResponse>, Status> {
        // There is nothing to move, but what a compaction left is free when the call returns.
        self.store.reclaim().await;
        Ok(Response::new(DefragmentResponse::default()))
    }

    async fn hash(&self, _request: Request<HashRequest>) -> Result<Response<HashResponse>, Status> {
        let (hash, revision) = self.store.hash(0).await?;
        Ok(Response::new(HashResponse {
            header: Some(self.store.header(revision)),
            hash: hash.hash,
        }))
    }

    async fn hash_kv(
        &self,
        request: Request<HashKvRequest>,
    ) -> Result<Response<HashKvResponse>, Status> {
        let (hash, revision) = self.store.hash(request.get_ref().revision).await?;
        Ok(Response::new(HashKvResponse {
            header: Some(self.store.header(revision)),
            hash: hash.hash,
            compact_revision: hash.compacted,
            hash_revision: hash.revision,
        }))
    }

    type SnapshotStream = ReceiverStream<Result<SnapshotResponse, Status>>;

    async fn snapshot(
        &self,
        _request: Request<SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        Ok(Response::new(snapshot::stream(self.store.clone())))
    }

    /// The leader of a single member is the member itself.
    async fn move_leader(
        &self,
        request: Request<MoveLeaderRequest>,
    ) -> Result<Response<MoveLeaderResponse>, Status> {
        if request.get_ref().target_id != self.store.header(0).member_id {
            let text = "etcdserver: bad leader transferee";
            return Err(Status::new(Code::FailedPrecondition, text));
        }
        Ok(Response::new(MoveLeaderResponse::default()))
    }

    async fn downgrade(
        &self,
        request: Request<DowngradeRequest>,
    ) -> Result<Response<DowngradeResponse>, Status> {
        downgrade::check(request.get_ref())?;
        Ok(Response::new(DowngradeResponse {
            header: Some(self.store.header(self.store.revision())),
            version: API_VERSION.into(),
        }))
    }
}

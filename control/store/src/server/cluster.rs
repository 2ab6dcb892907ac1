//! etcd's Cluster service: a cluster of one voting member.

use parking_lot::Mutex;
use tonic::{Code, Request, Response, Status};

use crate::{
    Store,
    membership::{MemberError, Membership},
    proto::etcdserverpb::{
        Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
        MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse,
        MemberUpdateRequest, MemberUpdateResponse, ResponseHeader, cluster_server::Cluster,
    },
    store::random,
};

/// etcd's default peer URL. The store has no peers and does not listen there; clients such as
/// kubeadm know a member by its peer URLs.
const PEER_URL: &str = "http://localhost:2380";

#[derive(Debug)]
pub(super) struct Service {
    store: Store,
    /// Locked while a change is applied and recorded, so that the records are in order.
    membership: Mutex<Membership>,
}

impl Service {
    pub(super) fn new(store: Store, name: String, client_urls: Vec<String>) -> Self {
        let own = Member {
            id: store.header(0).member_id,
            name,
            peer_ur_ls: vec![PEER_URL.into()],
            client_ur_ls: client_urls,
            is_learner: false,
        };
        let membership = Mutex::new(Membership::restored(own, store.members()));
        Self { store, membership }
    }

    /// As in etcd, the header of these responses has no revision.
    fn header(&self) -> ResponseHeader {
        self.store.header(0)
    }

    /// Applies a change; returns its result and the members after it, when the change is recorded.
    async fn change<R>(
        &self,
        apply: impl FnOnce(&mut Membership) -> Result<R, MemberError>,
    ) -> Result<Result<(R, Vec<Member>), MemberError>, Status> {
        let (result, members, written) = {
            let mut membership = self.membership.lock();
            let mut changed = membership.clone();
            let result = match apply(&mut changed) {
                Ok(result) => result,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let members = changed.members().to_vec();
            let written = self.store.record_members(members.clone())?;
            *membership = changed;
            (result, members, written)
        };
        self.store.settle(written).await?;
        Ok(Ok((result, members)))
    }
}

#[tonic::async_trait]
impl Cluster for Service {
    async fn member_add(
        &self,
        request: Request<MemberAddRequest>,
    ) -> Result<Response<MemberAddResponse>, Status> {
        let request = request.into_inner();
        let member = Member {
            id: random(),
            peer_ur_ls: request.peer_ur_ls,
            is_learner: request.is_learner,
            ..Member::default()
        };
        let (member, members) = self.change(|membership| membership.add(member)).await??;
        Ok(Response::new(MemberAddResponse {
            header: Some(self.header()),
            member: Some(member),
            members,
        }))
    }

    async fn member_remove(
        &self,
        request: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        let id = request.get_ref().id;
        let removed = self.change(|membership| membership.remove(id)).await?;
        // As in etcd, this one error of a removal has no code of its own.
        let ((), members) = removed.map_err(|refusal| match refusal {
            MemberError::NotEnoughStarted => Status::new(Code::Unknown, refusal.to_string()),
            other => other.into(),
        })?;
        let header = Some(self.header());
        Ok(Response::new(MemberRemoveResponse { header, members }))
    }

    async fn member_update(
        &self,
        request: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        let MemberUpdateRequest { id, peer_ur_ls } = request.into_inner();
        let update = |membership: &mut Membership| membership.update(id, peer_ur_ls);
        let ((), members) = self.change(update).await??;
        let header = Some(self.header());
        Ok(Response::new(MemberUpdateResponse { header, members }))
    }

    async fn member_list(
        &self,
        _request: Request<MemberListRequest>,
    ) -> Result<Response<MemberListResponse>, Status> {
        let header = Some(self.header());
        let members = self.membership.lock().members().to_vec();
        Ok(Response::new(MemberListResponse { header, members }))
    }

    async fn member_promote(
        &self,
        request: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        let membership = self.membership.lock();
        Err(membership.promotion_refusal(request.get_ref().id).into())
    }
}

impl From<MemberError> for Status {
    fn from(refusal: MemberError) -> Self {
        let code = match refusal {
            MemberError::NotFound => Code::NotFound,
            MemberError::BadUrls => Code::InvalidArgument,
            MemberError::UrlExists
            | MemberError::TooManyLearners
            | MemberError::NotLearner
            | MemberError::LearnerNotReady
            | MemberError::NotEnoughStarted => Code::FailedPrecondition,
        };
        Self::new(code, refusal.to_string())
    }
}

//! The members of the cluster: the server itself, and a learner that a client may add. Pure.
//!
//! The server replicates nothing: a learner is listed, never catches up and cannot be promoted.

mod url;

use crate::proto::etcdserverpb::Member;

/// Learners of a cluster at most; as in etcd.
const LEARNERS_MAX: usize = 1;

/// A refused change of the members, with etcd's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// No member has this ID.
    #[error("etcdserver: member not found")]
    NotFound,
    /// The list of peer URLs is empty, or one is not of the form `http://host:port`.
    #[error("etcdserver: given member URLs are invalid")]
    BadUrls,
    /// Another member has one of the peer URLs.
    #[error("etcdserver: Peer URLs already exists")]
    UrlExists,
    /// The cluster has [`LEARNERS_MAX`] learners.
    #[error("etcdserver: too many learner members in cluster")]
    TooManyLearners,
    /// Only a learner can be promoted.
    #[error("etcdserver: can only promote a learner member")]
    NotLearner,
    /// A learner never has the server's data.
    #[error("etcdserver: can only promote a learner member which is in sync with leader")]
    LearnerNotReady,
    /// The server is the only voting member, and stays it.
    #[error("etcdserver: re-configuration failed due to not enough started members")]
    NotEnoughStarted,
}

/// The members; the first is the server.
#[derive(Clone, Debug)]
pub struct Membership {
    members: Vec<Member>,
}

impl Membership {
    /// A cluster of one member.
    pub fn new(own: Member) -> Self {
        Self { members: vec![own] }
    }

    /// The cluster after a restart: `own` with the peer URLs that a client gave it, and the learners.
    pub fn restored(own: Member, recorded: Vec<Member>) -> Self {
        let mut restored = Self::new(own);
        for member in recorded {
            if member.id == restored.members[0].id {
                restored.members[0].peer_ur_ls = member.peer_ur_ls;
            } else {
                restored.members.push(member);
            }
        }
        restored
    }

    /// The members, the server first.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Adds a learner; returns it. A voting member is refused: the cluster could not commit without
    /// it.
    pub fn add(&mut self, member: Member) -> Result<Member, MemberError> {
        url::check(&member.peer_ur_ls)?;
        self.check_unused(&member)?;
        if !member.is_learner {
            return Err(MemberError::NotEnoughStarted);
        }
        if self.members.len() > LEARNERS_MAX {
            return Err(MemberError::TooManyLearners);
        }
        self.members.push(member.clone());
        Ok(member)
    }

    /// Removes a learner; the server itself cannot be removed.
    pub fn remove(&mut self, id: u64) -> Result<(), MemberError> {
        let position = self.position(id)?;
        if position == 0 {
            return Err(MemberError::NotEnoughStarted);
        }
        self.members.remove(position);
        Ok(())
    }

    /// Replaces the peer URLs of a member.
    pub fn update(&mut self, id: u64, peer_urls: Vec<String>) -> Result<(), MemberError> {
        let position = self.position(id)?;
        url::check(&peer_urls)?;
        let mut member = self.members[position].clone();
        member.peer_ur_ls = peer_urls;
        self.check_unused(&member)?;
        self.members[position] = member;
        Ok(())
    }

    /// Refuses to promote a member to a voting one.
    pub fn promotion_refusal(&self, id: u64) -> MemberError {
        match self.position(id) {
            Err(refusal) => refusal,
            Ok(0) => MemberError::NotLearner,
            Ok(_) => MemberError::LearnerNotReady,
        }
    }

    fn position(&self, id: u64) -> Result<usize, MemberError> {
        let mut members = self.members.iter();
        members
            .position(|member| member.id == id)
            .ok_or(MemberError::NotFound)
    }

    /// Checks that no other member has a peer URL of this one.
    fn check_unused(&self, member: &Member) -> Result<(), MemberError> {
        let mut others = self.members.iter().filter(|other| other.id != member.id);
        let used = others.any(|other| {
            let mut urls = other.peer_ur_ls.iter();
            urls.any(|url| member.peer_ur_ls.contains(url))
        });
        if used {
            Err(MemberError::UrlExists)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, url: &str, is_learner: bool) -> Member {
        Member {
            id,
            peer_ur_ls: vec![url.into()],
            is_learner,
            ..Member::default()
        }
    }

    fn cluster() -> Membership {
        Membership::new(member(1, "http://own:2380", false))
    }

    #[test]
    fn one_learner_may_be_added_and_removed() {
        let mut cluster = cluster();
        let learner = member(2, "http://learner:1", true);
        assert_eq!(cluster.add(learner.clone()), Ok(learner));
        let refusals = [
            ("http://learner:1", MemberError::UrlExists),
            ("http://other:1", MemberError::TooManyLearners),
        ];
        for (url, refusal) in refusals {
            assert_eq!(cluster.add(member(3, url, true)), Err(refusal));
        }
        assert_eq!(cluster.promotion_refusal(2), MemberError::LearnerNotReady);
        assert_eq!(cluster.remove(2), Ok(()));
        assert_eq!(cluster.remove(2), Err(MemberError::NotFound));
        assert_eq!(cluster.members().len(), 1);
    }

    #[test]
    fn the_server_stays_the_only_voting_member() {
        let mut cluster = cluster();
        let voter = member(2, "http://voter:1", false);
        assert_eq!(cluster.add(voter), Err(MemberError::NotEnoughStarted));
        assert_eq!(cluster.remove(1), Err(MemberError::NotEnoughStarted));
        assert_eq!(cluster.promotion_refusal(1), MemberError::NotLearner);
        assert_eq!(cluster.promotion_refusal(9), MemberError::NotFound);
    }

    #[test]
    fn a_restart_keeps_learners_and_updated_urls_and_takes_a_new_name() {
        let mut cluster = cluster();
        cluster.add(member(2, "http://learner:1", true)).unwrap();
        cluster.update(1, vec!["http://moved:2380".into()]).unwrap();
        let renamed = Member {
            name: "renamed".into(),
            ..member(1, "http://own:2380", false)
        };
        let restored = Membership::restored(renamed, cluster.members().to_vec());
        let [own, learner] = restored.members() else {
            panic!("{restored:?}");
        };
        assert_eq!(
            (own.name.as_str(), &*own.peer_ur_ls[0]),
            ("renamed", "http://moved:2380")
        );
        assert_eq!(learner, &member(2, "http://learner:1", true));
    }

    #[test]
    fn an_update_checks_the_member_then_the_urls() {
        let mut cluster = cluster();
        cluster.add(member(2, "http://learner:1", true)).unwrap();
        let update = |cluster: &mut Membership, id, url: &str| cluster.update(id, vec![url.into()]);
        assert_eq!(update(&mut cluster, 9, "x"), Err(MemberError::NotFound));
        assert_eq!(update(&mut cluster, 2, "x"), Err(MemberError::BadUrls));
        let taken = update(&mut cluster, 2, "http://own:2380");
        assert_eq!(taken, Err(MemberError::UrlExists));
        assert_eq!(update(&mut cluster, 2, "http://learner:2"), Ok(()));
        assert_eq!(cluster.members()[1].peer_ur_ls, ["http://learner:2"]);
    }
}

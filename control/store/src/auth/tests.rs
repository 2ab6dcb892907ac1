//! Users, roles and permission checks without a server.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{
    lease::LeaseId,
    proto::{
        authpb::{Permission, permission::Type},
        etcdserverpb::{
            Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
            request_op::Request,
        },
    },
};

fn change(state: &mut State, operation: impl FnOnce(&State) -> Result<Vec<Change>, AuthError>) {
    let changes = operation(state).unwrap();
    state.apply(changes);
}

fn permission(kind: Type, key: &'static str, range_end: &'static str) -> Permission {
    Permission {
        perm_type: kind.into(),
        key: key.into(),
        range_end: range_end.into(),
    }
}

/// Enabled, with `root` and a user `bob`, whose role has the permissions.
fn enabled(permissions: &[Permission]) -> State {
    let mut state = State::default();
    change(&mut state, |state| state.user_add(ROOT, None));
    change(&mut state, |state| state.user_grant_role(ROOT, ROOT));
    change(&mut state, |state| state.user_add("bob", None));
    change(&mut state, |state| state.role_add("role"));
    change(&mut state, |state| state.user_grant_role("bob", "role"));
    for permission in permissions {
        change(&mut state, |state| {
            state.role_grant("role", Some(permission.clone()))
        });
    }
    change(&mut state, State::enable);
    state
}

fn caller(state: &State, user: &str) -> Caller {
    Caller {
        user: Some(user.into()),
        revision: state.revision(),
    }
}

fn read(state: &State, caller: &Caller, key: &str) -> Result<(), AuthError> {
    state.check_range(caller, Right::Read, (key.as_bytes(), b""))
}

#[test]
fn a_role_loses_its_members_when_it_is_deleted() {
    let mut state = enabled(&[permission(Type::Read, "k", "")]);
    assert_eq!(read(&state, &caller(&state, "bob"), "k"), Ok(()));
    change(&mut state, |state| state.role_delete("role"));
    assert!(state.user("bob").unwrap().roles.is_empty());
    let denied = read(&state, &caller(&state, "bob"), "k");
    assert_eq!(denied, Err(AuthError::PermissionDenied));
    // A new role of the same name is not granted to the former members.
    change(&mut state, |state| state.role_add("role"));
    let grant = permission(Type::Read, "k", "");
    change(&mut state, |state| state.role_grant("role", Some(grant)));
    let denied = read(&state, &caller(&state, "bob"), "k");
    assert_eq!(denied, Err(AuthError::PermissionDenied));
}

#[test]
fn a_request_from_before_a_change_is_tried_again() {
    let mut state = enabled(&[permission(Type::Read, "k", "")]);
    let before = caller(&state, "bob");
    change(&mut state, |state| state.role_add("other"));
    assert_eq!(read(&state, &before, "k"), Err(AuthError::OldRevision));
    assert_eq!(state.check_current(&before), Err(AuthError::OldRevision));
}

#[test]
fn root_stays_root_while_authentication_is_enabled() {
    let state = enabled(&[]);
    let refused = Err(AuthError::InvalidManagement);
    assert_eq!(state.user_delete(ROOT), refused);
    assert_eq!(state.role_delete(ROOT), refused);
    assert_eq!(state.user_revoke_role(ROOT, ROOT), refused);
}

#[test]
fn a_second_grant_of_a_range_replaces_the_first() {
    let mut state = enabled(&[
        permission(Type::Read, "a", "c"),
        permission(Type::Readwrite, "a", ""),
        permission(Type::Read, "a", ""),
    ]);
    let granted = state.role_permissions("role").unwrap();
    let expected = [
        permission(Type::Read, "a", "c"),
        permission(Type::Read, "a", ""),
    ];
    assert_eq!(granted, expected);
    change(&mut state, |state| state.role_revoke("role", b"a", b""));
    assert_eq!(state.role_permissions("role").unwrap().len(), 1);
}

#[test]
fn a_password_of_a_user_without_one_is_not_set() {
    let mut state = enabled(&[]);
    let hash = Bytes::from_static(b"hash");
    change(&mut state, |state| state.user_change_password("bob", hash));
    assert_eq!(state.login_hash("bob"), Err(AuthError::NoPassword));
}

fn operation(request: Request) -> RequestOp {
    let request = Some(request);
    RequestOp { request }
}

fn put(key: &'static str) -> PutRequest {
    PutRequest {
        key: key.into(),
        ..Default::default()
    }
}

/// Checks a transaction as a user that may read `r`, write `w` and do both with `b`; the lease 7 has
/// the key `r`, 8 has `w`.
fn check_txn(txn: &TxnRequest) -> Result<(), AuthError> {
    let state = enabled(&[
        permission(Type::Read, "r", ""),
        permission(Type::Write, "w", ""),
        permission(Type::Readwrite, "b", ""),
    ]);
    let lease_keys = |id: LeaseId| match id {
        7 => vec![Bytes::from_static(b"r")],
        8 => vec![Bytes::from_static(b"w")],
        _ => Vec::new(),
    };
    let check = Check {
        state: &state,
        caller: &caller(&state, "bob"),
        lease_keys: &lease_keys,
    };
    check.txn(txn)
}

fn success(request: Request) -> TxnRequest {
    TxnRequest {
        success: vec![operation(request)],
        ..Default::default()
    }
}

#[test]
fn both_branches_of_a_transaction_need_permission_and_nested_ones_too() {
    let denied = Err(AuthError::PermissionDenied);
    let allowed = success(Request::RequestPut(put("w")));
    assert_eq!(check_txn(&allowed), Ok(()));
    let refused = success(Request::RequestPut(put("r")));
    assert_eq!(check_txn(&refused), denied);
    let branch = TxnRequest {
        failure: refused.success.clone(),
        ..allowed.clone()
    };
    assert_eq!(check_txn(&branch), denied);
    assert_eq!(check_txn(&success(Request::RequestTxn(allowed))), Ok(()));
    assert_eq!(check_txn(&success(Request::RequestTxn(refused))), denied);
}

#[test]
fn compares_and_previous_values_need_the_right_to_read() {
    let compare = |key: &'static str| TxnRequest {
        compare: vec![Compare {
            key: key.into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let with_prev = |key| PutRequest {
        prev_kv: true,
        ..put(key)
    };
    let delete = |key: &'static str| DeleteRangeRequest {
        key: key.into(),
        prev_kv: true,
        ..Default::default()
    };
    let denied = Err(AuthError::PermissionDenied);
    assert_eq!(check_txn(&compare("r")), Ok(()));
    assert_eq!(check_txn(&compare("w")), denied);
    for (key, expected) in [("b", Ok(())), ("w", denied)] {
        let put = success(Request::RequestPut(with_prev(key)));
        assert_eq!(check_txn(&put), expected);
        let delete = success(Request::RequestDeleteRange(delete(key)));
        assert_eq!(check_txn(&delete), expected);
    }
}

#[test]
fn a_put_with_a_lease_needs_the_right_to_write_all_keys_of_the_lease() {
    let with_lease = |lease| PutRequest { lease, ..put("w") };
    let denied = Err(AuthError::PermissionDenied);
    for (lease, expected) in [(7, denied), (8, Ok(())), (9, Ok(()))] {
        let txn = success(Request::RequestPut(with_lease(lease)));
        assert_eq!(check_txn(&txn), expected, "lease {lease}");
    }
}

#[test]
fn a_range_inside_a_transaction_needs_all_of_its_keys() {
    let range = RangeRequest {
        key: "r".into(),
        range_end: "s".into(),
        ..Default::default()
    };
    let denied = Err(AuthError::PermissionDenied);
    assert_eq!(check_txn(&success(Request::RequestRange(range))), denied);
}

/// An operation of the property test, on few names, so that most meet existing users and roles.
#[derive(Clone, Debug)]
enum Operation {
    UserAdd(u8),
    UserDelete(u8),
    RoleAdd(u8),
    RoleDelete(u8),
    Grant(u8, u8),
    Revoke(u8, u8),
    Permit(u8, u8, bool),
    Forbid(u8, u8),
}

fn operations() -> impl Strategy<Value = Operation> {
    let name = || 0_u8..3;
    prop_oneof![
        name().prop_map(Operation::UserAdd),
        name().prop_map(Operation::UserDelete),
        name().prop_map(Operation::RoleAdd),
        name().prop_map(Operation::RoleDelete),
        (name(), name()).prop_map(|(user, role)| Operation::Grant(user, role)),
        (name(), name()).prop_map(|(user, role)| Operation::Revoke(user, role)),
        (name(), name(), any::<bool>())
            .prop_map(|(role, key, to)| Operation::Permit(role, key, to)),
        (name(), name()).prop_map(|(role, key)| Operation::Forbid(role, key)),
    ]
}

fn run(state: &State, operation: &Operation) -> Result<Vec<Change>, AuthError> {
    let (user, role) = (
        |name: u8| format!("user{name}"),
        |name: u8| format!("role{name}"),
    );
    let key = |name: u8| [b'a' + name];
    match *operation {
        Operation::UserAdd(name) => state.user_add(&user(name), None),
        Operation::UserDelete(name) => state.user_delete(&user(name)),
        Operation::RoleAdd(name) => state.role_add(&role(name)),
        Operation::RoleDelete(name) => state.role_delete(&role(name)),
        Operation::Grant(name, to) => state.user_grant_role(&user(name), &role(to)),
        Operation::Revoke(name, from) => state.user_revoke_role(&user(name), &role(from)),
        Operation::Permit(name, on, write) => {
            let perm_type = if write { Type::Write } else { Type::Read }.into();
            let key = Bytes::copy_from_slice(&key(on));
            let range_end = Bytes::new();
            let permission = Permission {
                perm_type,
                key,
                range_end,
            };
            state.role_grant(&role(name), Some(permission))
        }
        Operation::Forbid(name, on) => state.role_revoke(&role(name), &key(on), b""),
    }
}

/// Whether a user has a right on a key, from its roles alone.
fn has_right(state: &State, user: &str, right: Type, key: &[u8]) -> bool {
    let roles = state.user(user).map(|user| user.roles.clone());
    roles.unwrap_or_default().iter().any(|role| {
        let permissions = state.role_permissions(role).unwrap_or_default();
        let mut permissions = permissions.iter();
        permissions.any(|own| own.key == key && own.perm_type == i32::from(right))
    })
}

proptest! {
    /// The merged permissions are those of the roles after any operations, and each operation that
    /// changes something is one revision.
    #[test]
    fn permissions_follow_every_change(list in proptest::collection::vec(operations(), 0..40)) {
        let mut state = enabled(&[]);
        for operation in &list {
            let before = state.revision();
            let changes = run(&state, operation).unwrap_or_default();
            let changed = u64::from(!changes.is_empty());
            state.apply(changes);
            prop_assert_eq!(state.revision(), before + changed);
        }
        for user in ["user0", "user1", "user2"] {
            for key in [b"a", b"b", b"c"] {
                for (right, kind) in [(Right::Read, Type::Read), (Right::Write, Type::Write)] {
                    let checked = state.check_range(&caller(&state, user), right, (key, b""));
                    let allowed = has_right(&state, user, kind, key);
                    prop_assert_eq!(checked.is_ok(), allowed, "{} {:?} {:?}", user, right, key);
                }
            }
        }
    }
}

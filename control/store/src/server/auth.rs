//! etcd's Auth service. The guard has checked that users of its methods have the role `root`, except
//! for logins and for users that read their own roles.

use bytes::Bytes;
use tonic::{Request, Response, Status};

use super::guard;
use crate::{
    Store,
    auth::{AuthError, Change, Credentials, State},
    proto::etcdserverpb::{
        AuthDisableRequest, AuthDisableResponse, AuthEnableRequest, AuthEnableResponse,
        AuthRoleAddRequest, AuthRoleAddResponse, AuthRoleDeleteRequest, AuthRoleDeleteResponse,
        AuthRoleGetRequest, AuthRoleGetResponse, AuthRoleGrantPermissionRequest,
        AuthRoleGrantPermissionResponse, AuthRoleListRequest, AuthRoleListResponse,
        AuthRoleRevokePermissionRequest, AuthRoleRevokePermissionResponse, AuthStatusRequest,
        AuthStatusResponse, AuthUserAddRequest, AuthUserAddResponse, AuthUserChangePasswordRequest,
        AuthUserChangePasswordResponse, AuthUserDeleteRequest, AuthUserDeleteResponse,
        AuthUserGetRequest, AuthUserGetResponse, AuthUserGrantRoleRequest,
        AuthUserGrantRoleResponse, AuthUserListRequest, AuthUserListResponse,
        AuthUserRevokeRoleRequest, AuthUserRevokeRoleResponse, AuthenticateRequest,
        AuthenticateResponse, ResponseHeader, auth_server::Auth,
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

    /// The header of a response: no operation on users and roles makes a revision of keys.
    fn header(&self) -> ResponseHeader {
        self.store.header(self.store.revision())
    }

    /// Runs an operation. That its user has the role `root` is checked in the same step, too: the role
    /// may have been revoked since the guard has checked it.
    async fn change(
        &self,
        credentials: Credentials,
        operation: impl FnOnce(&State) -> Result<Vec<Change>, AuthError>,
    ) -> Result<ResponseHeader, Status> {
        let caller = self.store.auth().caller(&credentials)?;
        let checked = |state: &State| {
            state.check_root(&caller)?;
            operation(state)
        };
        self.store.change_auth(checked).await??;
        Ok(self.header())
    }

    /// Checks that a request about a user or a role comes from `root` or from a user to which `own`
    /// applies.
    fn check_own<T>(
        &self,
        request: &Request<T>,
        own: impl FnOnce(&State, &str) -> bool,
    ) -> Result<(), Status> {
        let auth = self.store.auth();
        let caller = auth.caller(&guard::of_request(request))?;
        let user = caller.user.as_deref();
        auth.read(|state| {
            let root = state.check_root(&caller);
            root.or_else(|error| match user {
                Some(user) if own(state, user) => Ok(()),
                _ => Err(error),
            })
        })?;
        Ok(())
    }

    async fn hash(&self, password: String) -> Result<Bytes, Status> {
        Ok(self.store.auth().hash(password).await?)
    }
}

/// Whether a user has a role.
fn has_role(state: &State, user: &str, role: &str) -> bool {
    let user = state.user(user);
    user.is_ok_and(|user| user.roles.iter().any(|own| own == role))
}

#[tonic::async_trait]
impl Auth for Service {
    async fn auth_enable(
        &self,
        request: Request<AuthEnableRequest>,
    ) -> Result<Response<AuthEnableResponse>, Status> {
        let user = guard::of_request(&request);
        let header = Some(self.change(user, State::enable).await?);
        Ok(Response::new(AuthEnableResponse { header }))
    }

    async fn auth_disable(
        &self,
        request: Request<AuthDisableRequest>,
    ) -> Result<Response<AuthDisableResponse>, Status> {
        let user = guard::of_request(&request);
        let header = Some(self.change(user, |state| Ok(state.disable())).await?);
        Ok(Response::new(AuthDisableResponse { header }))
    }

    async fn auth_status(
        &self,
        _request: Request<AuthStatusRequest>,
    ) -> Result<Response<AuthStatusResponse>, Status> {
        let auth = self.store.auth();
        let (enabled, auth_revision) = auth.read(|state| (state.enabled(), state.revision()));
        Ok(Response::new(AuthStatusResponse {
            header: Some(self.header()),
            enabled,
            auth_revision,
        }))
    }

    async fn authenticate(
        &self,
        request: Request<AuthenticateRequest>,
    ) -> Result<Response<AuthenticateResponse>, Status> {
        let request = request.into_inner();
        let auth = self.store.auth();
        let token = auth.authenticate(&request.name, &request.password).await?;
        let header = Some(self.header());
        Ok(Response::new(AuthenticateResponse { header, token }))
    }

    /// As in etcd, the hash of the request is not used: the server hashes the password.
    async fn user_add(
        &self,
        request: Request<AuthUserAddRequest>,
    ) -> Result<Response<AuthUserAddResponse>, Status> {
        let user = guard::of_request(&request);
        let request = request.into_inner();
        let auth = self.store.auth();
        auth.read(|state| state.check_new_user(&request.name))?;
        let hash = if request.options.is_some_and(|options| options.no_password) {
            None
        } else {
            Some(self.hash(request.password).await?)
        };
        let header = Some(
            self.change(user, |state| state.user_add(&request.name, hash))
                .await?,
        );
        Ok(Response::new(AuthUserAddResponse { header }))
    }

    async fn user_get(
        &self,
        request: Request<AuthUserGetRequest>,
    ) -> Result<Response<AuthUserGetResponse>, Status> {
        let name = &request.get_ref().name;
        self.check_own(&request, |_, user| user == name)?;
        let auth = self.store.auth();
        let roles = auth.read(|state| state.user(name).map(|user| user.roles.clone()))?;
        let header = Some(self.header());
        Ok(Response::new(AuthUserGetResponse { header, roles }))
    }

    async fn user_list(
        &self,
        _request: Request<AuthUserListRequest>,
    ) -> Result<Response<AuthUserListResponse>, Status> {
        let auth = self.store.auth();
        let users = auth.read(|state| state.users().map(str::to_owned).collect());
        let header = Some(self.header());
        Ok(Response::new(AuthUserListResponse { header, users }))
    }

    async fn user_delete(
        &self,
        request: Request<AuthUserDeleteRequest>,
    ) -> Result<Response<AuthUserDeleteResponse>, Status> {
        let user = guard::of_request(&request);
        let name = &request.get_ref().name;
        let header = Some(self.change(user, |state| state.user_delete(name)).await?);
        self.store.auth().revoke_tokens(name);
        Ok(Response::new(AuthUserDeleteResponse { header }))
    }

    async fn user_change_password(
        &self,
        request: Request<AuthUserChangePasswordRequest>,
    ) -> Result<Response<AuthUserChangePasswordResponse>, Status> {
        let user = guard::of_request(&request);
        let AuthUserChangePasswordRequest { name, password, .. } = request.into_inner();
        self.store
            .auth()
            .read(|state| state.user(&name).map(|_| ()))?;
        let hash = self.hash(password).await?;
        let header = Some(
            self.change(user, |state| state.user_change_password(&name, hash))
                .await?,
        );
        self.store.auth().revoke_tokens(&name);
        Ok(Response::new(AuthUserChangePasswordResponse { header }))
    }

    async fn user_grant_role(
        &self,
        request: Request<AuthUserGrantRoleRequest>,
    ) -> Result<Response<AuthUserGrantRoleResponse>, Status> {
        let user = guard::of_request(&request);
        let request = request.get_ref();
        let change = |state: &State| state.user_grant_role(&request.user, &request.role);
        let header = Some(self.change(user, change).await?);
        Ok(Response::new(AuthUserGrantRoleResponse { header }))
    }

    async fn user_revoke_role(
        &self,
        request: Request<AuthUserRevokeRoleRequest>,
    ) -> Result<Response<AuthUserRevokeRoleResponse>, Status> {
        let user = guard::of_request(&request);
        let request = request.get_ref();
        let change = |state: &State| state.user_revoke_role(&request.name, &request.role);
        let header = Some(self.change(user, change).await?);
        Ok(Response::new(AuthUserRevokeRoleResponse { header }))
    }

    async fn role_add(
        &self,
        request: Request<AuthRoleAddRequest>,
    ) -> Result<Response<AuthRoleAddResponse>, Status> {
        let user = guard::of_request(&request);
        let header = Some(
            self.change(user, |state| state.role_add(&request.get_ref().name))
                .await?,
        );
        Ok(Response::new(AuthRoleAddResponse { header }))
    }

    async fn role_get(
        &self,
        request: Request<AuthRoleGetRequest>,
    ) -> Result<Response<AuthRoleGetResponse>, Status> {
        let role = &request.get_ref().role;
        self.check_own(&request, |state, user| has_role(state, user, role))?;
        let auth = self.store.auth();
        let perm = auth.read(|state| state.role_permissions(role))?;
        let header = Some(self.header());
        Ok(Response::new(AuthRoleGetResponse { header, perm }))
    }

    async fn role_list(
        &self,
        _request: Request<AuthRoleListRequest>,
    ) -> Result<Response<AuthRoleListResponse>, Status> {
        let auth = self.store.auth();
        let roles = auth.read(|state| state.roles().map(str::to_owned).collect());
        let header = Some(self.header());
        Ok(Response::new(AuthRoleListResponse { header, roles }))
    }

    async fn role_delete(
        &self,
        request: Request<AuthRoleDeleteRequest>,
    ) -> Result<Response<AuthRoleDeleteResponse>, Status> {
        let user = guard::of_request(&request);
        let header = Some(
            self.change(user, |state| state.role_delete(&request.get_ref().role))
                .await?,
        );
        Ok(Response::new(AuthRoleDeleteResponse { header }))
    }

    async fn role_grant_permission(
        &self,
        request: Request<AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<AuthRoleGrantPermissionResponse>, Status> {
        let user = guard::of_request(&request);
        let AuthRoleGrantPermissionRequest { name, perm } = request.into_inner();
        let header = Some(
            self.change(user, |state| state.role_grant(&name, perm))
                .await?,
        );
        Ok(Response::new(AuthRoleGrantPermissionResponse { header }))
    }

    async fn role_revoke_permission(
        &self,
        request: Request<AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<AuthRoleRevokePermissionResponse>, Status> {
        let user = guard::of_request(&request);
        let AuthRoleRevokePermissionRequest {
            role,
            key,
            range_end,
        } = request.into_inner();
        let header = Some(
            self.change(user, |state| state.role_revoke(&role, &key, &range_end))
                .await?,
        );
        Ok(Response::new(AuthRoleRevokePermissionResponse { header }))
    }
}

package sdk_test

import (
	"context"
	"errors"
	"net/http/httptest"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/oidc"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/authrest"
	"github.com/buildyard/buildyard/internal/rest/servicetest"
)

// accessRoutes are the routes of authentication of a service, all of them.
func accessRoutes(service farm.Service) []rest.Route {
	return authrest.Routes(authrest.Options{
		Service: service, Keys: &auth.APIKeys{}, Handshake: &auth.TAP{}, Grants: &auth.GrantTable{},
		ResourcesManaged: true,
		LoginCookies:     &auth.LoginCookies{}, RootToken: &auth.RootToken{}, Provider: &oidc.Provider{},
	})
}

// accessMethods are those about keys and permissions, which both clients have.
type accessMethods interface {
	CreateKey(context.Context, api.NewKey) (client.PrivateKey, error)
	Keys(context.Context) ([]api.Key, error)
	Key(context.Context, string) (api.Key, error)
	UpdateKey(context.Context, client.KeyChange) error
	DeleteKey(context.Context, string) error
	Permissions(context.Context) ([]api.Permission, error)
	SetPermissionGroup(context.Context, api.PermissionGroup) error
	PermissionGroups(context.Context) ([]api.PermissionGroup, error)
	PermissionGroup(context.Context, string) (api.PermissionGroup, error)
	DeletePermissionGroup(context.Context, string) error
	ResourcePermissions(context.Context) ([]api.ResourcePermissions, error)
	Resources(context.Context, string) ([]api.Resource, error)
	SetResources(context.Context, string, []api.Resource) error
}

// access calls services with authentication, as the root user and with an API key.
func (x *tour) access(made *calls) {
	as := func(service farm.Service, at string, creds client.Credentials) (methods accessMethods, err error) {
		o := client.Options{Transport: made, Credentials: creds}
		if service == farm.ServiceRegistry {
			return client.NewRegistry(at, o)
		}
		return client.NewController(at, o)
	}
	for service, on := range map[farm.Service]api.Resource{
		farm.ServiceController: {ID: "n", Type: "node", Permissions: []string{"list"}},
		farm.ServiceRegistry:   {ID: "t", Type: "template", Permissions: []string{"list"}},
	} {
		server := httptest.NewServer(servicetest.New(servicetest.Options{Service: service}))
		x.Cleanup(server.Close)
		root, err := as(service, server.URL, client.RootToken(servicetest.Root))
		x.ok(err)
		private, err := root.CreateKey(x.Context(), api.NewKey{ID: "ci", TTL: 60, Groups: []string{"g"}})
		x.ok(err)
		x.ok(root.SetPermissionGroup(x.Context(),
			api.PermissionGroup{Name: "g", Permissions: []string{"view_permissions"}}))
		x.ok(root.SetResources(x.Context(), "g", []api.Resource{on}))
		key, err := client.ParseAPIKey("ci", private.Reveal())
		x.ok(err)
		user, err := as(service, server.URL, key)
		x.ok(err)
		list, err := user.Permissions(x.Context())
		x.ok(err)
		if len(list) == 0 {
			x.Error("there are no permissions")
		}
		if _, err := user.Keys(x.Context()); !errors.Is(err, client.ErrForbidden) {
			x.Errorf("keys of somebody who may not: %v", err)
		}
		rights, err := user.ResourcePermissions(x.Context())
		x.ok(err)
		group, err2 := root.PermissionGroup(x.Context(), "g")
		groups, err3 := root.PermissionGroups(x.Context())
		resources, err4 := root.Resources(x.Context(), "g")
		x.ok(err2, err3, err4)
		if len(rights) != 1 || len(group.Permissions) != 1 || len(groups) != 1 || len(resources) != 1 ||
			resources[0].ID != on.ID {
			x.Errorf("%v %v %v %v", rights, group, groups, resources)
		}
		x.ok(root.UpdateKey(x.Context(), client.KeyChange{ID: "ci", Groups: []string{}}))
		shown, err := root.Key(x.Context(), "ci")
		x.ok(err)
		keys, err := root.Keys(x.Context())
		x.ok(err)
		if len(shown.Groups) != 0 || len(keys) != 1 {
			x.Errorf("%v %v", shown, keys)
		}
		x.ok(root.DeletePermissionGroup(x.Context(), "g"), root.DeleteKey(x.Context(), "ci"))
		if _, err := user.Permissions(x.Context()); !errors.Is(err, client.ErrUnauthenticated) {
			x.Errorf("with a deleted key: %v", err)
		}
	}
}

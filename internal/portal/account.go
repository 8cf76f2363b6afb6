package portal

import (
	"cmp"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
)

func (p *portal) accountPages() []page {
	return []page{{pattern: "/account", templateName: "account", title: "Account", buildView: showAccount}}
}

// accountView is the page of who is logged in and what they may do.
type accountView struct {
	Disabled         bool // callers do not have to log in
	RegistryIsRemote bool // the registry is another process, which has its own permissions
	Rights           api.Rights
	Credential       string // its kind
	SessionEnds      time.Time
	Services         []accountService
	CurlCommand      string
}

// accountService is what the visitor may do at a service.
type accountService struct {
	Key, Name, HiddenReason string
	Enforced                bool // permissions are asked for
	Areas                   []permissionArea
	Granted, Total          int
}

func showAccount(v *visit) (any, error) {
	out := accountView{
		Disabled: !v.loginRequired, RegistryIsRemote: v.registry == nil,
		CurlCommand: curlCommand(v, "GET", "/api/v1/rights", ""),
	}
	if out.Disabled {
		return out, nil
	}
	rights, err := v.Rights(v, v.rightsQuery)
	if err != nil {
		return nil, err
	}
	v.capabilities = &capabilities{rights: &rights}
	out.Rights = rights
	out.Credential = cmp.Or(credentialNames[rights.Credential], rights.Credential, "unknown")
	if rights.Expires != nil {
		out.SessionEnds = *rights.Expires
	}
	out.Services = append(out.Services,
		newAccountService(farm.ServiceController, "Controller", rights.Enforced, rights.Permissions))
	if v.registry != nil {
		there, err := v.registryAccount()
		if err != nil {
			return nil, err
		}
		out.Services = append(out.Services, there)
	}
	return out, nil
}

// registryAccount returns what the visitor may do at the registry.
func (v *visit) registryAccount() (accountService, error) {
	there, err := v.registry.Rights(v, "")
	switch {
	case client.CodeOf(err) == client.ErrUnauthenticated:
		return accountService{}, err
	case err != nil || there == nil:
		return accountService{Key: "registry", Name: "Registry", HiddenReason: notShownReason(err)}, nil
	}
	return newAccountService(farm.ServiceRegistry, "Registry", there.Enforced, there.Permissions), nil
}

func newAccountService(service farm.Service, name string, enforced bool, has []string) accountService {
	var all []api.Permission
	for _, p := range farm.AllPermissions(service) {
		all = append(all, api.Permission{
			Name: string(p.Name), Area: p.Category, Label: p.Label, Description: p.Description,
		})
	}
	out := accountService{
		Key: string(service), Name: name, Enforced: enforced, Areas: permissionAreas(all, has), Total: len(all),
	}
	for _, p := range all {
		if slices.Contains(has, p.Name) {
			out.Granted++
		}
	}
	return out
}

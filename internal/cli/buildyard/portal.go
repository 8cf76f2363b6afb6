package buildyard

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/portal"
	"github.com/buildyard/buildyard/internal/rest/authrest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/store"
)

// withPortal serves the portal's pages, and passes other requests to the API.
func (s *ControllerService) withPortal(api http.Handler) http.Handler {
	var registry http.Handler
	if s.registry != nil {
		routes := slices.Concat(registryrest.RoutesWithLimits(s.registry.registry, s.registry.limits),
			s.registry.access.Routes())
		registry = s.registry.access.Guard().Handler(routes, s.registry.log)
	}
	return portal.Handler(portal.Options{
		API: api, RegistryAPI: registry, LoginRequired: s.access.Guard() != nil, Version: obs.FullVersion(),
		LoginCookies:     []string{auth.SecureLoginCookie, auth.LoginCookie},
		SubscribeChanges: s.portalChanges,
		Logger:           s.log,
		AllowedOrigins:   originsOf(s.settings.List(config.AllowedHosts)),
	})
}

// originsOf returns the addresses from which pages of hosts come, as browsers name them.
func originsOf(hosts []string) (out []string) {
	for _, host := range hosts {
		out = append(out, "http://"+strings.TrimSpace(host), "https://"+strings.TrimSpace(host))
	}
	return out
}

// exposureAlarms reports that other machines can use this process without authentication.
func (s *ControllerService) exposureAlarms() []api.Alarm {
	if exposed := s.ExposedAddresses(); len(exposed) > 0 {
		return []api.Alarm{{
			Name: api.AlarmNoAuth, Message: "Authentication is off and other machines can connect to " +
				strings.Join(exposed, ", ") +
				": every client can run scripts in VMs and delete templates",
			Action: "Run `buildyard init` and restart to enable authentication, or listen on 127.0.0.1 only.",
		}}
	}
	return nil
}

// showPortalLogin sends the login page of the portal.
func showPortalLogin(w http.ResponseWriter, status int, p authrest.LoginPage) {
	portal.ShowLogin(w, status,
		portal.LoginPage{
			ReturnPath: p.ReturnPath, ErrorText: p.ErrorText, TokenAccepted: p.TokenAccepted,
			KeysAccepted: p.KeysAccepted, ProviderName: p.ProviderName, LoggedIn: p.LoggedIn,
		})
}

// portalChanges reports which topics of the portal changed in the store, and in the registry where that
// is in this process. Pages of templates show changes in another registry after their next
// automatic refresh.
func (s *ControllerService) portalChanges() (changed <-chan struct{}, take func() portal.Topics, stop func()) {
	var topics atomic.Uint32
	wake := make(chan struct{}, 1)
	tell := func(some portal.Topics) {
		if some == 0 {
			return
		}
		topics.Or(uint32(some))
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	stop = s.store.Subscribe(func(events []store.Event) {
		var some portal.Topics
		for i := range events {
			some |= portalTopicsOf(&events[i])
		}
		tell(some)
	})
	if s.registry != nil {
		inStore, inRegistry := stop, s.registry.registry.OnChange(func() { tell(portal.Templates) })
		stop = func() {
			inStore()
			inRegistry()
		}
	}
	return wake, func() portal.Topics { return portal.Topics(topics.Swap(0)) }, stop
}

// portalTopicsOf returns the topics of a change of a record.
func portalTopicsOf(e *store.Event) portal.Topics {
	value := e.New
	if value == nil {
		value = e.Old
	}
	switch value.(type) {
	case *farm.Instance, *farm.InstanceHistory:
		return portal.Instances
	case *farm.Node, *farm.NodeInfo:
		return portal.Nodes
	case *farm.Group:
		return portal.Groups | portal.Nodes
	case *farm.Pool, *farm.PoolStats:
		return portal.Pools
	case *record.EventBatch:
		return portal.Events
	case *farm.CacheJob, *farm.CacheJobResult:
		return portal.CacheJobs
	}
	return 0
}

// Package servicetest is a small service with user keys, made of the parts of package auth,
// for the tests of those who call one: it shakes hands, knows its callers, manages keys and
// rights on single resources, and hands everything else on to what is behind it.
//
// It is not for products: it keeps everything in memory and limits nothing. How a real
// service answers is the matter of its routes.
//
// Invariant: nothing but the handshake is served to callers without credentials.
package servicetest

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// Root is the root token of every service here.
const Root = "the root token of the tests"

// Options say what service it is. The zero value is a controller with nothing behind it.
type Options struct {
	Service farm.Service  // "": the controller
	TTL     time.Duration // of sessions; 0: the default
	Next    http.Handler  // what is behind; nil: an empty list is answered
	// May judges callers of Next; nil: all may.
	May         func(who auth.Identity, r *http.Request) error
	Certificate func(r *http.Request) (name string, groups []string, ok bool, err error)
	JWT         string // a ready token that counts; "": none
}

// Service is the service. It serves requests and counts them.
type Service struct {
	Keys   *auth.Keys
	Signer *auth.Signer
	Grants *auth.GrantTable

	Hands, Shakes, Refused, Served atomic.Int64

	tap  *auth.Tap
	who  auth.Authenticator
	kind farm.Service
	o    Options
	mux  *http.ServeMux
}

var _ http.Handler = (*Service)(nil)

// New makes a service without keys.
func New(o Options) *Service {
	s := &Service{
		Keys: auth.NewKeys(auth.NewKeyTable(nil, nil)), Signer: auth.NewSigner(auth.NewRing(time.Now())),
		Grants: auth.NewGrantTable(auth.Grants{}, nil), kind: o.Service, o: o, mux: http.NewServeMux(),
	}
	if s.kind == "" {
		s.kind = farm.ServiceController
	}
	root, err := auth.NewRoot(Root)
	if err != nil {
		panic(err)
	}
	s.who = auth.Authenticator{Root: root, Sessions: auth.NewSessions(s.Keys, s.Signer, o.TTL), Certificate: o.Certificate}
	if o.JWT != "" {
		s.who.JWT = s.jwt
	}
	s.tap = auth.NewTap(s.who.Sessions, &auth.MarkTable{})
	s.routes()
	return s
}

// Add makes a key that lives an hour, and gives its private half.
func (s *Service) Add(id string, groups ...string) (private string, err error) {
	secret, err := s.Keys.Create(context.Background(), auth.NewKey{ID: id, TTL: 3600, Groups: groups})
	return secret.Reveal(), err
}

func (s *Service) routes() {
	keys := "/api/v1/apikey"
	if s.kind == farm.ServiceRegistry {
		keys = "/v1/apikey"
	}
	s.mux.HandleFunc("POST "+api.PathHand, s.hand)
	s.mux.HandleFunc("POST "+api.PathShake, s.shake)
	for pattern, do := range map[string]func(r *http.Request, body []byte) (any, error){
		"GET " + keys:                                     s.listKeys,
		"POST " + keys:                                    s.createKey,
		"PUT " + keys:                                     s.updateKey,
		"DELETE " + keys:                                  s.deleteKey,
		"GET " + permission:                               s.permissions,
		"GET " + permission + "/group":                    s.groups,
		"GET " + permission + "/group/{group}":            s.group,
		"POST " + permission + "/group/{group}":           s.setGroup,
		"DELETE " + permission + "/group/{group}":         s.deleteGroup,
		"GET " + permission + "/resources/permissions":    s.rights,
		"GET " + permission + "/group/{group}/resources":  s.resources,
		"POST " + permission + "/group/{group}/resources": s.setResources,
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			who, err := s.who.Identify(r)
			if err == nil && !who.Root {
				err = auth.Forbidden(farm.PermRoot)
			}
			var body any
			if err == nil {
				var raw []byte
				if raw, err = io.ReadAll(io.LimitReader(r.Body, 1<<20)); err == nil {
					body, err = do(r, raw)
				}
			}
			s.answer(w, body, err)
		})
	}
	s.mux.HandleFunc("/", s.behind)
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// behind hands a request on whose caller is known.
func (s *Service) behind(w http.ResponseWriter, r *http.Request) {
	who, err := s.who.Identify(r)
	if err == nil && s.o.May != nil {
		err = s.o.May(who, r)
	}
	switch {
	case err != nil:
		s.answer(w, nil, err)
	case s.o.Next != nil:
		s.Served.Add(1)
		s.o.Next.ServeHTTP(w, r)
	default:
		s.Served.Add(1)
		s.answer(w, []string{}, nil)
	}
}

func (s *Service) jwt(_ context.Context, token string) (string, []string, error) {
	if token != s.o.JWT {
		return "", nil, farm.Errorf(farm.CodeUnauthenticated, "Authentication Required")
	}
	return "job", nil, nil
}

func (s *Service) hand(w http.ResponseWriter, r *http.Request) {
	s.Hands.Add(1)
	raw, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	in, err := auth.ParseHand(raw)
	var text string
	if err == nil {
		text, err = s.tap.Hand(in.ID, r.RemoteAddr)
	}
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	_, _ = io.WriteString(w, text)
}

func (s *Service) shake(w http.ResponseWriter, r *http.Request) {
	s.Shakes.Add(1)
	raw, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	in, err := auth.ParseShake(raw)
	var out api.ShakeAnswer
	if err == nil {
		out, err = s.tap.Shake(r.Context(), in, r.RemoteAddr)
	}
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	_ = json.NewEncoder(w).Encode(out)
}

// statuses are the HTTP statuses of refusals; others are 200.
var statuses = map[farm.Code]int{
	farm.CodeUnauthenticated: http.StatusUnauthorized, farm.CodeForbidden: http.StatusForbidden,
	farm.CodeInvalid: http.StatusBadRequest, farm.CodeTooMany: http.StatusTooManyRequests, farm.CodeInternal: http.StatusInternalServerError,
}

// answer writes an envelope.
func (s *Service) answer(w http.ResponseWriter, body any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err == nil {
		_ = json.NewEncoder(w).Encode(map[string]any{"status": api.StatusOK, "message": "", "body": body})
		return
	}
	code, message := farm.CodeOf(err), err.Error()
	if code == farm.CodeUnauthenticated {
		s.Refused.Add(1)
		message = "Authentication Required"
	}
	if status, ok := statuses[code]; ok {
		w.WriteHeader(status)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"status": api.StatusFail, "message": message})
}

func (s *Service) listKeys(r *http.Request, _ []byte) (any, error) {
	list := s.Keys.List()
	if id := r.URL.Query().Get("id"); id != "" {
		k, err := s.Keys.Get(id)
		if err != nil {
			return nil, err
		}
		list = []farm.APIKey{k}
	}
	out := make([]api.Key, len(list))
	for i, k := range list {
		out[i] = api.Key{ID: k.ID, Groups: k.Groups, Expiration: k.Expires, Created: k.Created}
	}
	return out, nil
}

func (s *Service) createKey(r *http.Request, body []byte) (any, error) {
	var in api.NewKey
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, farm.Invalid("body", "%v", err)
	}
	secret, err := s.Keys.Create(r.Context(), auth.NewKey{ID: in.ID, TTL: in.TTL, Groups: in.Groups, PublicKey: in.PublicKey})
	if err != nil || in.PublicKey != "" {
		return nil, err
	}
	return secret.Reveal(), nil
}

func (s *Service) updateKey(r *http.Request, body []byte) (any, error) {
	var in struct {
		ID     string
		TTL    *int64
		Groups *[]string
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, farm.Invalid("body", "%v", err)
	}
	if in.Groups == nil && s.kind == farm.ServiceController {
		return nil, farm.Invalid("groups", "is missing")
	}
	return nil, s.Keys.Update(r.Context(), in.ID, auth.KeyChange{TTL: in.TTL, Groups: in.Groups})
}

func (s *Service) deleteKey(r *http.Request, _ []byte) (any, error) {
	return nil, s.Keys.Delete(r.Context(), r.URL.Query().Get("id"))
}

// permission is the path of permissions.
const permission = "/admin/api/v1/permission"

func (s *Service) permissions(*http.Request, []byte) (any, error) {
	var out []api.Permission
	for _, p := range farm.AllPermissions(s.kind) {
		out = append(out, api.Permission{Name: string(p.Name), Area: p.Area, Label: p.Label, Description: p.Description})
	}
	return out, nil
}

func (s *Service) groups(*http.Request, []byte) (any, error) {
	all := s.Grants.Grants().Groups
	out := []api.PermissionGroup{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, groupOf(name, all[name]))
	}
	return out, nil
}

func groupOf(name string, list []farm.Permission) api.PermissionGroup {
	g := api.PermissionGroup{Name: name, Permissions: []string{}}
	for _, p := range list {
		g.Permissions = append(g.Permissions, string(p))
	}
	return g
}

func (s *Service) group(r *http.Request, _ []byte) (any, error) {
	name := r.PathValue("group")
	list, ok := s.Grants.Grants().Groups[name]
	if !ok {
		return nil, farm.NotFound()
	}
	return groupOf(name, list), nil
}

func (s *Service) setGroup(r *http.Request, body []byte) (any, error) {
	var in struct{ Permissions []farm.Permission }
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, farm.Invalid("body", "%v", err)
	}
	return nil, s.Grants.Change(r.Context(), func(g auth.Grants) (auth.Grants, error) {
		return g.SetGroup(s.kind, r.PathValue("group"), in.Permissions)
	})
}

func (s *Service) deleteGroup(r *http.Request, _ []byte) (any, error) {
	return nil, s.Grants.Change(r.Context(), func(g auth.Grants) (auth.Grants, error) { return g.DeleteGroup(r.PathValue("group")) })
}

func (s *Service) rights(*http.Request, []byte) (any, error) {
	out := []api.ResourcePermissions{}
	for _, kind := range farm.ResourceTypes(s.kind) {
		texts := map[string]api.PermissionText{}
		for _, p := range farm.ResourcePermissions(kind) {
			texts[string(p.Name)] = api.PermissionText{Label: p.Label, Description: p.Description}
		}
		out = append(out, api.ResourcePermissions{ResourceType: string(kind), Permissions: texts})
	}
	return out, nil
}

func (s *Service) resources(r *http.Request, _ []byte) (any, error) {
	out := []api.Resource{}
	for _, p := range s.Grants.Grants().Resources[r.PathValue("group")] {
		one := api.Resource{ID: p.ID, IDType: p.IDType, Type: string(p.Type)}
		for _, name := range p.Permissions {
			one.Permissions = append(one.Permissions, string(name))
		}
		out = append(out, one)
	}
	return out, nil
}

func (s *Service) setResources(r *http.Request, body []byte) (any, error) {
	var in []api.Resource
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, farm.Invalid("body", "%v", err)
	}
	list := make([]farm.ResourcePermission, len(in))
	for i, one := range in {
		list[i] = farm.ResourcePermission{ID: one.ID, IDType: one.IDType, Type: farm.ResourceType(one.Type)}
		for _, name := range one.Permissions {
			list[i].Permissions = append(list[i].Permissions, farm.Permission(strings.TrimSpace(name)))
		}
	}
	return nil, s.Grants.Change(r.Context(), func(g auth.Grants) (auth.Grants, error) {
		return g.SetResources(s.kind, r.PathValue("group"), list)
	})
}

package authrest

import (
	"bytes"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// keyPaths are the paths of the services' API keys.
var keyPaths = map[farm.Service]string{
	farm.ServiceController: "/api/v1/apikey",
	farm.ServiceRegistry:   "/v1/apikey",
}

// Parameters of API keys.
const (
	keyID     = "id"
	keyTTL    = "ttl"
	keyGroups = "groups"
	keyPublic = "publicKey"
)

func (s *server) keyRoutes() []rest.Route {
	path, rootOnly := keyPaths[s.o.Service], string(farm.PermRoot)
	return s.upToDate([]rest.Route{
		{Pattern: "GET " + path, Permission: rootOnly, Do: s.listKeys},
		{Pattern: "POST " + path, Permission: rootOnly, Do: s.createKey},
		{Pattern: "PUT " + path, Permission: rootOnly, Do: s.updateKey},
		{Pattern: "DELETE " + path, Permission: rootOnly, Do: s.deleteKey},
	})
}

// listKeys returns all keys, or an array with the requested one.
func (s *server) listKeys(r *rest.Request) (any, error) {
	id := r.Params.String(keyID)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if id == "" {
		list := []api.Key{}
		for _, k := range s.o.Keys.List() {
			list = append(list, shownKey(k))
		}
		return list, nil
	}
	k, err := s.o.Keys.Get(id)
	if err != nil {
		return nil, err
	}
	return []api.Key{shownKey(k)}, nil
}

func shownKey(k farm.APIKey) api.Key {
	return api.Key{ID: k.ID, Groups: rest.List(k.Groups), Expiration: k.Expires, Created: k.Created}
}

// createKey returns the private key, unless the client sent a public key.
func (s *server) createKey(r *rest.Request) (any, error) {
	p := r.Params
	n := auth.NewKey{ID: p.Required(keyID), PublicKey: publicText(p)}
	for _, name := range []string{keyTTL, keyGroups} {
		if !p.Has(name) {
			p.Fail(name, "is required")
		}
	}
	n.TTL, n.Groups = int64(p.Int(keyTTL, 0, 1, auth.MaxKeyTTL)), p.Words(keyGroups)
	if err := p.Err(); err != nil {
		return nil, err
	}
	private, err := s.o.Keys.Create(r.Context(), n)
	if err != nil {
		return nil, err
	}
	rest.AuditSubject(r.Request, n.ID)
	if n.PublicKey != "" {
		return nil, nil // an answer without a body
	}
	return private.Reveal(), nil
}

// publicText reads a public key. In an unescaped query its pluses have become spaces.
func publicText(p *rest.Params) string { return strings.ReplaceAll(p.String(keyPublic), " ", "+") }

// updateKey changes groups and lifetime of a key. The controller always requires the groups.
func (s *server) updateKey(r *rest.Request) (any, error) {
	p := r.Params
	id, public := p.Required(keyID), publicText(p)
	var change auth.KeyChange
	if p.Has(keyGroups) {
		groups := p.Words(keyGroups)
		change.Groups = &groups
	} else if s.o.Service == farm.ServiceController {
		p.Fail(keyGroups, "is required")
	}
	if p.Has(keyTTL) {
		ttl := int64(p.Int(keyTTL, 0, 1, auth.MaxKeyTTL))
		change.TTL = &ttl
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if public != "" {
		if err := s.samePublic(id, public); err != nil {
			return nil, err
		}
	}
	return nil, about(r, id, s.o.Keys.Update(r.Context(), id, change))
}

// about sets the audited name of a change that succeeded.
func about(r *rest.Request, name string, err error) error {
	if err == nil {
		rest.AuditSubject(r.Request, name)
	}
	return err
}

// samePublic refuses a public key other than the current one; a client may send back the current one.
func (s *server) samePublic(id, text string) error {
	k, err := s.o.Keys.Get(id)
	if err != nil {
		return err
	}
	if _, der, err := auth.ParsePublicKey(text); err != nil || !bytes.Equal(der, k.PublicKey) {
		return farm.Invalid(keyPublic, "the public key of an API key cannot be changed: create a new API key")
	}
	return nil
}

func (s *server) deleteKey(r *rest.Request) (any, error) {
	id := r.Params.Required(keyID)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return nil, about(r, id, s.o.Keys.Delete(r.Context(), id))
}

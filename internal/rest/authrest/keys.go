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
	path, rootOnly := keyPaths[s.opts.Service], string(farm.PermRoot)
	return s.waitConsistentFirst([]rest.Route{
		{Pattern: "GET " + path, Permission: rootOnly, Handle: s.listKeys},
		{Pattern: "POST " + path, Permission: rootOnly, Handle: s.createKey},
		{Pattern: "PUT " + path, Permission: rootOnly, Handle: s.updateKey},
		{Pattern: "DELETE " + path, Permission: rootOnly, Handle: s.deleteKey},
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
		for _, k := range s.opts.Keys.List() {
			list = append(list, keyToAPI(k))
		}
		return list, nil
	}
	k, err := s.opts.Keys.Get(id)
	if err != nil {
		return nil, err
	}
	return []api.Key{keyToAPI(k)}, nil
}

func keyToAPI(k farm.APIKey) api.Key {
	return api.Key{ID: k.ID, Groups: rest.NonNil(k.Groups), Expiration: k.Expires, Created: k.Created}
}

// createKey returns the private key, unless the client sent a public key.
func (s *server) createKey(r *rest.Request) (any, error) {
	p := r.Params
	n := auth.NewAPIKey{ID: p.Required(keyID), PublicKey: publicKeyText(p)}
	for _, name := range []string{keyTTL, keyGroups} {
		if !p.Has(name) {
			p.RecordError(name, "is required")
		}
	}
	n.TTL, n.Groups = int64(p.Int(keyTTL, 0, 1, auth.MaxKeyTTL)), p.CommaList(keyGroups)
	if err := p.Err(); err != nil {
		return nil, err
	}
	private, err := s.opts.Keys.Create(r.Context(), n)
	if err != nil {
		return nil, err
	}
	rest.AuditSubject(r.Request, n.ID)
	if n.PublicKey != "" {
		return nil, nil // an answer without a body
	}
	return private.Reveal(), nil
}

// publicKeyText reads a public key. In an unescaped query its pluses have become spaces.
func publicKeyText(p *rest.Params) string { return strings.ReplaceAll(p.String(keyPublic), " ", "+") }

// updateKey changes groups and lifetime of a key. The controller always requires the groups.
func (s *server) updateKey(r *rest.Request) (any, error) {
	p := r.Params
	id, public := p.Required(keyID), publicKeyText(p)
	var change auth.APIKeyChange
	if p.Has(keyGroups) {
		groups := p.CommaList(keyGroups)
		change.Groups = &groups
	} else if s.opts.Service == farm.ServiceController {
		p.RecordError(keyGroups, "is required")
	}
	if p.Has(keyTTL) {
		ttl := int64(p.Int(keyTTL, 0, 1, auth.MaxKeyTTL))
		change.TTL = &ttl
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if public != "" {
		if err := s.checkSamePublicKey(id, public); err != nil {
			return nil, err
		}
	}
	return nil, auditSubject(r, id, s.opts.Keys.Update(r.Context(), id, change))
}

// auditSubject sets the audited name of a change that succeeded.
func auditSubject(r *rest.Request, name string, err error) error {
	if err == nil {
		rest.AuditSubject(r.Request, name)
	}
	return err
}

// checkSamePublicKey refuses a public key other than the current one; a client may send back the current one.
func (s *server) checkSamePublicKey(id, text string) error {
	k, err := s.opts.Keys.Get(id)
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
	return nil, auditSubject(r, id, s.opts.Keys.Delete(r.Context(), id))
}

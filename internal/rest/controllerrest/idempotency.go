package controllerrest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/buildyard/buildyard/internal/controller/idempotency"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// idempotencyKey is the header with the client's key for a request, and maxIdempotencyKey the longest key, in
// bytes.
const (
	idempotencyKey    = "Idempotency-Key"
	maxIdempotencyKey = 255
)

// withIdempotencyKey runs a request with an idempotency key at most once: a repeated request within a day gets the
// first response. A request that fails leaves no record, so that it can be repeated.
func (s *server) withIdempotencyKey(do rest.HandlerFunc) rest.HandlerFunc {
	return func(r *rest.Request) (any, error) {
		names := r.Header[idempotencyKey]
		if len(names) == 0 || names[0] == "" {
			return do(r)
		}
		name := names[0]
		unprintable := func(c rune) bool { return c < ' ' || c > '~' }
		if len(names) > 1 || len(name) > maxIdempotencyKey || strings.ContainsFunc(name, unprintable) {
			return nil, farm.Invalid(idempotencyKey, "must have 1 to %d printable ASCII characters", maxIdempotencyKey)
		}
		what := []string{r.Method, r.URL.Path, name}
		// no caller gets the response to another caller
		if caller := rest.CallerOf(r.Context()); caller.IsAuthenticated() {
			what = append(what, string(caller.Identity.Method), caller.Name)
			if caller.ActsFor != nil {
				what = append(what, caller.ActsFor.Name)
			}
		}
		ask := idempotency.Request{
			ID: textsDigest(what...), Digest: parametersDigest(r), Caller: rest.CallerName(r.Request),
		}
		if answer, known, err := s.controller.Idempotency.Lookup(r.Context(), &ask, false); known || err != nil {
			return answer, err
		}
		body, err := do(&rest.Request{
			Request: r.WithContext(idempotency.WithRequest(r.Context(), ask)), Params: r.Params,
		})
		if err == nil {
			return body, nil
		}
		if answer, known, again := s.controller.Idempotency.Lookup(r.Context(), &ask, true); known || again != nil {
			return answer, again // a concurrent request with the same key was faster, or this one succeeded after all
		}
		return nil, err
	}
}

// textsDigest returns a digest of texts, none of which has a zero byte.
func textsDigest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// parametersDigest returns a digest of the parameters of a request, independent of their order and notation in
// JSON.
func parametersDigest(r *rest.Request) string {
	var value any
	body := r.Params.RawBody()
	if json.Unmarshal(body, &value) == nil {
		body, _ = json.Marshal(value) // a decoded value always encodes
	}
	return textsDigest(r.URL.Query().Encode(), string(body))
}

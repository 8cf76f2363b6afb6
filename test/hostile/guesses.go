package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// guesses are attempts to find secrets by trying.
var guesses = family{name: "guesses", site: arrangement{nodes: 4}, attacks: []attack{
	{"root token at the controller", func(ctx context.Context, s *site, o *outcome) {
		s.guess(ctx, o, s.rootGuess(s.controller, "/api/v1/status"))
	}, false},
	{"root token at the registry", func(ctx context.Context, s *site, o *outcome) {
		s.guess(ctx, o, s.rootGuess(s.registry, "/registry/status"))
	}, false},
	{"log-in page", func(ctx context.Context, s *site, o *outcome) { s.guess(ctx, o, s.loginGuess) }, false},
	{"join token", func(ctx context.Context, s *site, o *outcome) { s.guess(ctx, o, s.joinGuess) }, false},
	{"secrets of handshakes", shakes, false},
	{"ids of keys", keyIDs, false},
	{"root token from 40 addresses", manyGuessers, false},
}}

// guess tries a secret, the right one or not.
type guess func(ctx context.Context, c caller, right bool) (answer, error)

func (s *site) rootGuess(address, path string) guess {
	return func(ctx context.Context, c caller, right bool) (answer, error) {
		token := rand.Text()
		if right {
			token = s.root
		}
		return c.with(basic(token)).send(ctx, "GET "+address+path, "")
	}
}

func (s *site) loginGuess(ctx context.Context, c caller, right bool) (answer, error) {
	token := rand.Text()
	if right {
		token = s.root
	}
	return c.send(ctx, "POST "+s.controller+"/login", `{"token":"`+token+`"}`)
}

func (s *site) joinGuess(ctx context.Context, c caller, right bool) (answer, error) {
	token := rand.Text()
	if right {
		token = s.joinToken
	}
	// texts always encode
	in, _ := json.Marshal(api.JoinRequest{Protocol: api.LinkProtocol, Token: token, Name: "guessed", Host: "127.0.0.1"})
	return c.send(ctx, "POST "+s.controller+api.PathJoin, string(in))
}

// longestLimit is how long an address may be limited after its last failure.
const longestLimit = 10 * time.Second

// guess tries wrong secrets from one address, then the right one: it is refused too, for seconds,
// and accepted afterwards.
func (s *site) guess(ctx context.Context, o *outcome, try guess) {
	c := s.attacker()
	compared := 0
	for range 200 {
		a, err := try(ctx, c, false)
		o.want("a wrong secret", a, err, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests)
		if a.code != http.StatusTooManyRequests {
			compared++
		}
	}
	if compared > 60 {
		o.fault("%d of 200 guesses were compared", compared)
	}
	began := time.Now()
	a, err := try(ctx, c, true)
	if o.want("the right secret from a limited address", a, err, http.StatusTooManyRequests); err != nil {
		return
	}
	wait, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || time.Duration(wait)*time.Second > longestLimit {
		o.fault("Retry-After of a limited address is %q", a.header.Get("Retry-After"))
		return
	}
	for {
		rig.Pause(ctx, time.Duration(wait)*time.Second)
		if a, err = try(ctx, c, true); err != nil || a.code != http.StatusTooManyRequests ||
			time.Since(began) > longestLimit {
			break
		}
	}
	if err != nil || a.code >= http.StatusBadRequest {
		o.fault("the right secret is answered %d after %.1f s: %.200s %v", a.code, time.Since(began).Seconds(), a.body,
			err)
	}
	o.effect("%d of 200 compared, the right one taken after %.1f s", compared, time.Since(began).Seconds())
	if joined := a.envelope().Body; strings.Contains(string(joined), "node_id") {
		var is api.JoinAnswer
		o.check(json.Unmarshal(joined, &is))
		o.check(s.rooted.get(ctx, "DELETE "+s.controller+"/api/v1/node", map[string]string{"node_id": is.NodeID}, nil))
	}
}

// shakes guesses secrets of handshakes of a key, whose owner shakes concurrently.
func shakes(ctx context.Context, s *site, o *outcome) {
	c := s.attacker()
	for range 200 {
		a, err := c.send(ctx, "POST "+s.controller+"/tap/v1/shake",
			fmt.Sprintf(`{"id":"bystander","secret":%q}`, rand.Text()+"x"))
		o.want("a wrong secret", a, err, http.StatusUnauthorized, http.StatusTooManyRequests)
	}
	if refused, _ := o.count("429"); refused == 0 {
		o.fault("failed handshakes of one address are not limited")
	}
	key, err := s.key(ctx, "shaker", everything)
	if err != nil {
		o.check(err)
		return
	}
	for range 20 { // each asks again, also from the address that has failed
		good, err := c.as(key, s.controller)
		if err != nil {
			o.check(err)
			return
		}
		a, err := good.send(ctx, "GET "+s.controller+"/api/v1/status", "")
		if err != nil || a.code != http.StatusOK {
			o.fault("a good handshake is answered %d %v", a.code, err)
		}
	}
}

// keyIDs asks for hands of keys that there are and that there are not: the answers look alike.
func keyIDs(ctx context.Context, s *site, o *outcome) {
	c := s.attacker()
	look := func(id string) string {
		a, err := c.send(ctx, "POST "+s.controller+"/tap/v1/hand", fmt.Sprintf(`{"id":%q}`, id))
		o.check(err)
		return fmt.Sprintf("%d with %d bytes of %s", a.code, len(a.body), a.header.Get("Content-Type"))
	}
	known := look("bystander")
	for n := range 100 {
		if other := look(fmt.Sprint("nobody", n)); other != known {
			o.fault("a hand for an unknown id is answered %s, for a known one %s", other, known)
			return
		}
		o.refuse("not told apart")
	}
}

// manyGuessers try root tokens from many addresses: all together are limited, an address known
// before is not.
func manyGuessers(ctx context.Context, s *site, o *outcome) {
	try, compared := s.rootGuess(s.controller, "/api/v1/status"), 0
	for host := range byte(40) {
		c := caller{by: &http.Client{Transport: connectionsFrom(net.IPv4(127, 0, 2, host+1)), Timeout: patience}}
		for range 30 {
			a, err := try(ctx, c, false)
			o.want("a wrong secret", a, err, http.StatusUnauthorized, http.StatusTooManyRequests)
			if a.code == http.StatusUnauthorized {
				compared++
			}
		}
	}
	if refused, _ := o.count("429"); refused == 0 {
		o.fault("1,200 guesses of 40 addresses are not limited")
	}
	a, err := s.rooted.send(ctx, "GET "+s.controller+"/api/v1/status", "")
	if err != nil || a.code != http.StatusOK {
		o.fault("the root user is answered %d at a known address: %v", a.code, err)
	}
	o.effect("%d of 1200 compared, the root user served at a known address", compared)
}

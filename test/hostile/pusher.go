package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
)

// hostilePusher has the attacks of a caller who may push.
var hostilePusher = family{name: "hostile pusher", site: arrangement{nodes: 4}, attacks: []attack{
	{"241 empty negotiations", emptyNegotiations, false},
	{"reservations of the whole disk", reservations, false},
	{"log rows without an end", manyRows, false},
	{"slow bodies of parts and files", slowParts, false},
}}

// othersPush pushes a template as the root user, who must not be hindered.
func (s *site) othersPush(ctx context.Context, o *outcome) {
	began := time.Now()
	if _, err := s.push(ctx, "", "others "+uuid.NewString()[:8], "v1"); err != nil {
		o.fault("others cannot push: %v", err)
		return
	}
	o.effect("a push of others took %s", time.Since(began).Round(time.Millisecond))
}

// limited counts an answer, and finds fault with a refusal that is not 429, lacks Retry-After or names no setting.
func (o *outcome) limited(a answer, err error, settings ...string) (taken bool) {
	if code := o.note(a, err); err != nil || code < http.StatusBadRequest {
		return err == nil
	}
	named := false
	for _, setting := range settings {
		named = named || strings.Contains(string(a.body), setting)
	}
	if a.code != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || !named {
		o.fault("a refusal is %d, Retry-After %q, %.200s; want 429 that names %s", a.code, a.header.Get("Retry-After"),
			a.body, strings.Join(settings, " or "))
	}
	return false
}

// someRefused finds fault when nothing was refused, or everything was.
func (o *outcome) someRefused(what string) {
	refused, taken := o.count("429")
	if refused == 0 || taken == 0 {
		o.fault("of %s %d were taken and %d refused; want some of both", what, taken, refused)
	}
}

func emptyNegotiations(ctx context.Context, s *site, o *outcome) {
	c, err := s.keyed(ctx, "negotiator", everything)
	if err != nil {
		o.check(err)
		return
	}
	for i := range 241 {
		a, err := c.send(ctx, "POST "+s.registry+"/registry/v2/push", emptyPush(s.b, fmt.Sprint("evil", i), ""))
		o.limited(a, err, "SVC_MAX_PUSHES")
	}
	o.someRefused("the negotiations")
	s.othersPush(ctx, o)
}

// reserve is the body of a push that announces a file of some size.
func reserve(id, tag string, size int64) string {
	return fmt.Sprintf(
		`{"id":%q,"tag":%q,"arch":"amd64","config":%s,"files":[{"name":"disk.img","kind":"disk","format":"raw","size":%d}]}`, id, tag, config, size)
}

func reservations(ctx context.Context, s *site, o *outcome) {
	c, err := s.keyed(ctx, "reserver", everything)
	if err != nil {
		o.check(err)
		return
	}
	var disk api.DiskInfo
	if err := s.rooted.get(ctx, "GET "+s.registry+"/registry/disk", nil, &disk); err != nil {
		o.check(err)
		return
	}
	for i := range 40 {
		a, err := c.send(ctx, "POST "+s.registry+"/registry/v2/push",
			reserve(s.b, fmt.Sprint("large", i), disk.Free/10*9))
		o.limited(a, err, "SVC_MAX_PUSH_RESERVATION")
	}
	o.someRefused("the reservations")
	s.othersPush(ctx, o)
}

// manyRows sends log rows as fast as they are taken, up to 200 MB.
func manyRows(ctx context.Context, s *site, o *outcome) {
	c, err := s.keyed(ctx, "logger", everything)
	if err != nil {
		o.check(err)
		return
	}
	rows := make([]api.LogRow, 100)
	for i := range rows {
		rows[i] = api.LogRow{Service: "evil", MachineName: "m", Host: "10.0.0.1", Content: strings.Repeat("x", 8<<10)}
	}
	raw, err := json.Marshal(rows)
	o.check(err)
	for range 250 {
		a, err := c.send(ctx, "POST "+s.registry+api.PathLog, string(raw))
		if !o.limited(a, err, "SVC_MAX_LOG_ROW_BYTES", "SVC_MAX_LOG_ROWS") && a.code != http.StatusTooManyRequests {
			break
		}
	}
	o.someRefused("the batches of rows")
}

// slowParts sends parts of a push a byte a second, over many connections.
func slowParts(ctx context.Context, s *site, o *outcome) {
	c, err := s.keyed(ctx, "slow-pusher", everything)
	if err != nil {
		o.check(err)
		return
	}
	var session api.PushSession
	o.check(c.get(ctx, "POST "+s.registry+"/registry/v2/push", json.RawMessage(reserve(s.b, "slow", 1<<20)), &session))
	at := s.registry + "/registry/v2/push/" + session.Session + "/disk.img"
	slowBodies(ctx, o, c, []string{"PUT " + at + "?off=0", "PUT " + at + "?index=" +
		strings.Repeat("0", 64), "PUT " + s.registry + "/registry/files/slow"}, 100)
	s.othersPush(ctx, o)
}

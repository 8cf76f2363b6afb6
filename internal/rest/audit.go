package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// AuditRecord describes one change that a caller made or was refused. The only caller-controlled texts in it
// are the verified name, the name of the user a program acts for, and the name of an existing or created
// object.
type AuditRecord struct {
	Time       time.Time   `json:"time"`
	Request    string      `json:"request"`            // ID of the request
	Identifier string      `json:"who"`                // the name of the credential; "" without a credential
	ForUser    string      `json:"for_user,omitempty"` // the user that a program acts for; "" for itself
	Method     auth.Method `json:"method"`             // the authentication method
	KeyID      string      `json:"key_id,omitempty"`
	Address    string      `json:"address"`
	Verb       string      `json:"verb"`  // HTTP method
	Route      string      `json:"route"` // the route's pattern; "" if no route matches
	Outcome    string      `json:"outcome"`
	About      string      `json:"about,omitempty"`  // what was changed, if the route alone does not identify it
	OwnEvents  bool        `json:"-"`                // the change has separate events that name the caller
	Reason     string      `json:"reason,omitempty"` // why a credential was refused
	// LeftOut is the number of refusals, from any address, that came too often to be recorded one by one since
	// the last recorded refusal.
	LeftOut int64 `json:"left_out,omitempty"`
}

// Outcomes other than error codes.
const outcomeDone = "done"

// Auditor keeps audit records. It must not block.
type Auditor interface {
	Audit(ctx context.Context, a AuditRecord)
}

// refusals are the error codes of requests that were denied access.
var refusals = map[farm.Code]bool{farm.CodeUnauthenticated: true, farm.CodeForbidden: true, farm.CodeTooMany: true}

// fail records why a request failed.
func (p *requestAudit) fail(err error) {
	p.code = farm.CodeOf(err)
	e, ok := errors.AsType[*farm.Error](err)
	switch {
	case !ok || p.code != farm.CodeUnauthenticated:
	case e.Err != nil:
		p.reason = clipped(e.Err.Error())
	default:
		p.reason = e.Message // which is not part of the response
	}
}

// maxReason bounds the reason of a refusal in the audit, in bytes.
const maxReason = 300

func clipped(text string) string { return text[:min(len(text), maxReason)] }

// failed records the failure of a handler. Waiting node requests have no requestAudit: only their refusals are
// audited.
func (g *Guard) failed(w http.ResponseWriter, r *http.Request, route *Route, err error) {
	if g == nil || err == nil {
		return
	}
	p := auditOf(r.Context())
	if p != nil {
		p.fail(err)
		return
	}
	p = &requestAudit{guard: g, route: route, verb: r.Method, request: w.Header().Get(RequestIDHeader), ended: true}
	p.Address = addressOf(r, g.o.Proxied)
	p.fail(err)
	p.close(r.Context())
}

// close audits a request that has ended.
func (p *requestAudit) close(ctx context.Context) {
	outcome := outcomeDone
	switch {
	case !p.ended: // the handler panicked
		outcome = string(farm.CodeInternal)
	case p.code != "":
		outcome = string(p.code)
	}
	changes := p.verb != http.MethodGet && p.verb != http.MethodHead && !p.route.Steady && p.route.Pattern != ""
	switch {
	case refusals[p.code] || changes && p.code != "" && !p.Is(): // limited, so that failures cannot fill a disk
		p.guard.refused(ctx, p.record(outcome))
	case changes || p.introduced && p.code == "":
		p.guard.audit(ctx, slog.LevelInfo, p.record(outcome))
	}
}

// AuditOpened immediately audits that a long-running request, which changes no record, was granted access. name
// is what it was granted access to.
func AuditOpened(r *http.Request, name string) {
	p := auditOf(r.Context())
	if p == nil {
		return
	}
	AuditSubject(r, name)
	p.guard.audit(r.Context(), slog.LevelInfo, p.record(outcomeDone))
}

func (p *requestAudit) record(outcome string) AuditRecord {
	return AuditRecord{
		Time: time.Now().UTC(), Request: p.request, Identifier: p.Name, ForUser: p.forUser(), Method: p.Identity.Method,
		KeyID:   p.KeyID,
		Address: p.Address, Verb: p.verb, Route: p.route.Pattern, Outcome: outcome, Reason: p.reason, About: p.about,
		OwnEvents: p.route.OwnEvents,
	}
}

// refused audits a refusal, unless there are too many from its address.
func (g *Guard) refused(ctx context.Context, a AuditRecord) {
	if g.noise.CountFrom(a.Address) {
		g.leftOut.Add(1)
		return
	}
	a.LeftOut = g.leftOut.Swap(0)
	g.audit(ctx, slog.LevelWarn, a)
}

func (g *Guard) audit(ctx context.Context, level slog.Level, a AuditRecord) {
	g.o.Logger.LogAttrs(ctx, level, "audit", slog.String("request", a.Request), slog.String("who", a.Identifier),
		slog.String("method", string(a.Method)), slog.String("key", a.KeyID), slog.String("address", a.Address),
		slog.String("verb", a.Verb), slog.String("route", a.Route), slog.String("outcome", a.Outcome),
		slog.String("reason", a.Reason), slog.String("about", a.About), slog.Int64("left_out", a.LeftOut),
		slog.String("for_user", a.ForUser))
	if g.o.Auditor != nil {
		g.o.Auditor.Audit(ctx, a)
	}
}

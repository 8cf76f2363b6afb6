package nodelink

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// maxCachedPoll is the longest poll whose text is cached, in bytes. The polls of an idle node are less
// than half as long.
const maxCachedPoll = 1 << 10

// decodedPoll is a poll as text and decoded. It is not changed once it is cached.
type decodedPoll struct {
	text    []byte
	req     api.PollRequest
	bounded bool // nodeinput.Poll has accepted it
}

// PollRaw is Poll for a request that was not decoded yet. An idle node sends the same bytes every
// time, which are not decoded again. sent is the node's time when it sent the poll; zero: not known.
func (l *Link) PollRaw(
	ctx context.Context, credential string, text []byte, sent time.Time, wait time.Duration,
) (*api.PollAnswer, error) {
	h, err := l.Sessions.decode(text)
	if err != nil {
		return nil, err
	}
	return l.poll(ctx, credential, h, sent, wait)
}

// decode decodes a poll, or returns its cached form.
func (n *Sessions) decode(text []byte) (*decodedPoll, error) {
	if h := n.cached(text); h != nil {
		return h, nil
	}
	h := &decodedPoll{text: text}
	if err := json.Unmarshal(text, &h.req); err != nil {
		return nil, farm.Errorf(farm.CodeInvalid, "The request does not have the form of the node protocol")
	}
	return h, nil
}

// cached returns the last poll of a node if it had this same text. The node is only guessed here:
// the decoded form depends on the text alone, and every poll is authenticated.
func (n *Sessions) cached(text []byte) *decodedPoll {
	const before = `"node_id":"`
	_, id, _ := bytes.Cut(text, []byte(before))
	id, _, found := bytes.Cut(id, []byte(`"`))
	if !found {
		return nil
	}
	n.mu.Lock()
	s := n.byNode[string(id)]
	n.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	h := s.lastPoll
	s.mu.Unlock()
	if h == nil || !bytes.Equal(h.text, text) {
		return nil
	}
	return h
}

// cachePoll caches a poll that may come again unchanged.
func (s *session) cachePoll(p *decodedPoll) {
	r := &p.req
	if len(p.text) > maxCachedPoll || r.Info != nil || r.HasHeld || r.Update != nil || r.Pulled != 0 ||
		len(r.Acks)+len(r.Details)+len(r.Held) > 0 {
		return
	}
	s.mu.Lock()
	s.lastPoll = p
	s.mu.Unlock()
}

// EmptyPollResponse returns the response to a poll without any work.
func (l *Link) EmptyPollResponse() *api.PollAnswer {
	return &api.PollAnswer{Registry: l.opts.RegistryAddress, CentralLog: l.opts.CentralLog}
}

// IsEmptyPoll reports whether a response of this controller's Poll equals EmptyPollResponse.
func IsEmptyPoll(a *api.PollAnswer) bool {
	return !a.NeedFull && !a.Removed && !a.NoCentralLog && a.Update == nil && a.Cloud == nil &&
		len(a.Orders)+len(a.Describe)+len(a.CacheJobs)+len(a.Consoles) == 0
}

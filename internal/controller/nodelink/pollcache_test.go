package nodelink

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
)

// idlePoll returns the poll of a node that has nothing to report, as bytes.
func idlePoll(node string, change func(*api.PollRequest)) []byte {
	req := api.PollRequest{Protocol: api.LinkProtocol, NodeID: node, BootID: "boot", InfoHash: "info", HeldHash: "0"}
	change(&req)
	raw, err := json.Marshal(req)
	if err != nil {
		panic(err)
	}
	return raw
}

// TestUnchangedPollIsCached checks that only short polls without new information are cached.
func TestUnchangedPollIsCached(t *testing.T) {
	withLink(t, func(t *testing.T, l *testLink) {
		node := l.addNode()
		for name, x := range map[string]struct {
			change func(*api.PollRequest)
			want   bool
		}{
			"idle":    {func(*api.PollRequest) {}, true},
			"usage":   {func(r *api.PollRequest) { r.Usage = &api.Usage{CPU: 0.5} }, true},
			"info":    {func(r *api.PollRequest) { r.Info = &api.NodeInfo{Arch: "amd64"} }, false},
			"held":    {func(r *api.PollRequest) { r.HasHeld = true }, false},
			"acks":    {func(r *api.PollRequest) { r.Acks = []api.Ack{{}} }, false},
			"details": {func(r *api.PollRequest) { r.Details = []api.InventoryDetail{{}} }, false},
			"long":    {func(*api.PollRequest) {}, false},
		} {
			text := idlePoll(node, x.change)
			if name == "long" {
				text = append(text, bytes.Repeat([]byte(" "), maxCachedPoll)...)
			}
			if _, err := l.PollRaw(t.Context(), credential, bytes.Clone(text), time.Time{}, 0); err != nil {
				t.Fatal(err)
			}
			if got := l.Sessions.cached(text) != nil; got != x.want {
				t.Errorf("%s: cached is %t, want %t", name, got, x.want)
			}
		}
	})
}

// TestCachedPollEqualsDecoded checks that the cached form of a text equals its decoded and bounded
// form, whatever came before.
func TestCachedPollEqualsDecoded(t *testing.T) {
	withLink(t, func(t *testing.T, l *testLink) {
		nodes := []string{l.addNode(), l.addNode()}
		random := rand.New(rand.NewPCG(1, 2))
		found := 0
		for range 5000 {
			text := idlePoll(nodes[random.IntN(2)], func(r *api.PollRequest) {
				if random.IntN(2) == 0 {
					r.Usage = &api.Usage{CPU: float64(random.IntN(100)) / 100, VMs: random.IntN(3)}
				}
				r.Host = []string{"", "10.0.0.2", `"node_id":"` + nodes[0]}[random.IntN(3)]
			})
			if random.IntN(2) == 0 {
				text[random.IntN(len(text))] = byte(random.IntN(256))
			}
			for range 2 {
				_, _ = l.PollRaw(t.Context(), credential, bytes.Clone(text), time.Time{}, 0)
			}
			p := l.Sessions.cached(text)
			if p == nil {
				continue
			}
			found++
			var want api.PollRequest
			err := json.Unmarshal(text, &want)
			if err == nil {
				err = nodeinput.Poll(&want)
			}
			if err != nil || !cmp.Equal(p.req, want) {
				t.Fatalf("%s\nis taken for %+v (%v)", text, p.req, err)
			}
			if usage, _ := l.Sessions.usage(want.NodeID); want.Usage != nil && usage != *want.Usage {
				t.Fatalf("usage %+v, want %+v", usage, *want.Usage)
			}
		}
		if found < 1000 {
			t.Errorf("only %d of 5000 polls were cached", found)
		}
	})
}

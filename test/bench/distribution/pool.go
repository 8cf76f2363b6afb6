package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/netns"
	"github.com/buildyard/buildyard/test/rig"
)

// Starts claim the standbys of a full pool. A claimed standby keeps its slot until all others are claimed, too, so that
// no other boots on the same processors; the pool fills again outside of the measured time. Few boot at the same time,
// since more of them would take longer than a boot may on a machine with few processors.
const (
	claims   = 100
	standbys = 10
	boots    = 2

	poolLimit  = 10 * time.Minute // of filling it
	callLimit  = 30 * time.Second // of a guest
	calmLimit  = 2 * time.Minute
	calmWindow = 500 * time.Millisecond
	calmShare  = 0.5 // of a processor, that all guests together use when they are idle

	takenOver = "a start took over the VM of a standby" // in the log of the agent
)

// claim is one start that claimed a standby.
type claim struct {
	id    string
	began time.Time

	// Milliseconds since the request was sent.
	Answered  float64 `json:"answered_ms"`   // it was answered
	TakenOver float64 `json:"taken_over_ms"` // the agent had handed the VM to the start
	Command   float64 `json:"command_ms"`    // the first command had run in the guest
}

// pool measures the claims.
func (b *bench) pool(ctx context.Context) (err error) {
	s, err := openStage(ctx, b, "pool", nil)
	if s != nil {
		defer func() { err = errors.Join(err, s.close(ctx)) }()
	}
	if err != nil {
		return err
	}
	guest, err := b.Programs.Guest(ctx, s.dir)
	if err != nil {
		return err
	}
	if s.template, err = s.cloud.PushGuest(ctx, guest); err != nil {
		return err
	}
	if err := s.join(ctx, rig.NodeOptions{Name: "pool", Capacity: standbys, Driver: "qemu"}); err != nil {
		return err
	}
	calls, err := answerCalls(ctx, netns.HubAddress)
	if err != nil {
		return err
	}
	defer calls.close()
	var p api.Pool
	body := map[string]any{"name": "bench", "template_id": s.template, "tag": "v1", "min_idle": boots}
	if err := s.client.Send(ctx, http.MethodPost, "/api/v1/pool", body, &p); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.removePool(ctx, p.ID)) }()
	for len(b.claims) < claims {
		if err := s.claimAll(ctx, p.ID, calls); err != nil {
			return err
		}
	}
	if p, err = s.lookAtPool(ctx, p.ID); err != nil {
		return err
	}
	if p.Stats.Hits != claims || p.Stats.EarlyHits != 0 || p.Stats.Misses != 0 {
		return fmt.Errorf("%d starts have claimed a ready standby and %d one that booted, and %d none; all %d were "+
			"expected to claim a ready one", p.Stats.Hits, p.Stats.EarlyHits, p.Stats.Misses, claims)
	}
	return s.addClaims()
}

// claimAll waits until the pool is full, claims all standbys one by one, and ends them.
func (s *stage) claimAll(ctx context.Context, pool string, calls *calls) error {
	for want := boots; want <= standbys; want += boots {
		if err := s.fillPool(ctx, pool, want); err != nil {
			return err
		}
	}
	var ids []string
	for range standbys {
		if err := s.calm(ctx); err != nil {
			return err
		}
		c, err := s.claim(ctx, calls)
		if err != nil {
			return err
		}
		ids = append(ids, c.id)
		s.claims = append(s.claims, c)
	}
	s.Say("claimed %d standbys; first command after %.0f ms (median of %d)", len(s.claims),
		row.Median(times(s.claims, func(c claim) float64 { return c.Command })), len(s.claims))
	// The next ones boot as soon as there are free slots.
	if err := s.resizePool(ctx, pool, boots); err != nil {
		return err
	}
	return s.terminate(ctx, ids)
}

// fillPool waits until the pool has so many ready standbys.
func (s *stage) fillPool(ctx context.Context, pool string, want int) error {
	if err := s.resizePool(ctx, pool, want); err != nil {
		return err
	}
	var p api.Pool
	err := s.await(ctx, poolLimit, glance, "ready standbys", func() (full bool, err error) {
		p, err = s.lookAtPool(ctx, pool)
		return p.Ready == want, err
	})
	if err != nil {
		return fmt.Errorf("%w; %d of %d are ready, %d have failed: %s", err, p.Ready, want, p.Stats.Failed, p.Problem)
	}
	return nil
}

func (s *stage) resizePool(ctx context.Context, pool string, want int) error {
	body := map[string]any{"id": pool, "min_idle": want}
	return s.client.Send(ctx, http.MethodPut, "/api/v1/pool", body, nil)
}

// claim starts an instance, and waits until the first command has run in its guest.
func (s *stage) claim(ctx context.Context, calls *calls) (c claim, err error) {
	token := rand.Text()
	body := map[string]any{
		"vmid": s.template, "tag": "v1",
		"startup_script": base64.StdEncoding.EncodeToString([]byte(callScript(calls.address(), token))),
	}
	var ids []string
	c.began = time.Now()
	if err := s.client.Send(ctx, http.MethodPost, "/api/v1/vm", body, &ids); err != nil {
		return c, err
	}
	c.Answered = runner.MS(time.Since(c.began))
	if len(ids) != 1 {
		return c, fmt.Errorf("asked for 1 instance, got %d", len(ids))
	}
	c.id = ids[0]
	at, err := calls.await(ctx, token)
	if err != nil {
		return c, fmt.Errorf("instance %s: %w", c.id, err)
	}
	c.Command = runner.MS(at.Sub(c.began))
	return c, nil
}

// callScript is a startup script whose first command, one of bash itself, connects to an address.
func callScript(address, token string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("exec 3<>/dev/tcp/%s/%s\necho %s >&3\n", host, port, token)
}

// calm waits until the guests use little of a processor.
func (s *stage) calm(ctx context.Context) error {
	return s.await(ctx, calmLimit, look, "idle guests", func() (bool, error) {
		list, err := rig.QEMUs(s.dir)
		if err != nil {
			return false, err
		}
		pids := []int{s.nodes[0].PID(), s.cloud.PID()}
		for _, q := range list {
			pids = append(pids, q.PID)
		}
		used, err := runner.Share(ctx, calmWindow, pids...)
		return used < calmShare, err
	})
}

func (s *stage) lookAtPool(ctx context.Context, id string) (p api.Pool, err error) {
	return p, s.client.Send(ctx, http.MethodGet, "/api/v1/pool?id="+url.QueryEscape(id), nil, &p)
}

// terminate ends instances and waits until they are gone.
func (s *stage) terminate(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if err := s.client.Send(ctx, http.MethodDelete, "/api/v1/vm", map[string]string{"id": id}, nil); err != nil {
			return err
		}
	}
	return s.await(ctx, endLimit, glance, "the end of instances", func() (bool, error) {
		var list []api.InstanceItem
		err := s.client.Send(ctx, http.MethodGet, "/api/v1/vm", nil, &list)
		return err == nil && len(list) == 0, err
	})
}

// removePool removes the pool and waits until its standbys are gone. What a failed claim has left, close ends.
func (s *stage) removePool(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	if err := s.client.Send(ctx, http.MethodDelete, "/api/v1/pool", map[string]string{"id": id}, nil); err != nil {
		return err
	}
	return s.await(ctx, endLimit, glance, "the end of the standbys", func() (bool, error) {
		var list []api.InstanceItem
		if err := s.client.Send(ctx, http.MethodGet, "/api/v1/vm", nil, &list); err != nil {
			return false, err
		}
		left, err := rig.QEMUs(s.dir)
		return len(left) <= len(list), err
	})
}

// addClaims adds the samples, and where their time went.
func (s *stage) addClaims() error {
	log, err := os.ReadFile(s.nodes[0].Log)
	if err != nil {
		return err
	}
	took := takeovers(string(log))
	for i, c := range s.claims {
		at, found := took[c.id]
		if !found {
			return fmt.Errorf("the agent's log does not say when a start took over the VM of %s", c.id)
		}
		s.claims[i].TakenOver = runner.MS(at.Sub(c.began))
	}
	for _, c := range s.claims {
		s.Add(rowPoolP50, c.Command)
		s.Add(rowPoolP99, c.Command)
	}
	median := func(of func(claim) float64) float64 { return row.Median(times(s.claims, of)) }
	s.Note(rowPoolP50, "of these, medians: answered after %.0f ms, taken over by the agent after %.0f ms",
		median(func(c claim) float64 { return c.Answered }), median(func(c claim) float64 { return c.TakenOver }))
	return nil
}

// takeovers reads from the log of an agent when starts took over the VMs of standbys, by instance.
func takeovers(log string) map[string]time.Time {
	found := map[string]time.Time{}
	for line := range strings.Lines(log) {
		var entry struct {
			Time     time.Time `json:"time"`
			Message  string    `json:"msg"`
			Instance string    `json:"instance_id"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Message == takenOver {
			found[entry.Instance] = entry.Time
		}
	}
	return found
}

func times(list []claim, of func(claim) float64) (all []float64) {
	for _, c := range list {
		all = append(all, of(c))
	}
	return all
}

// calls receives the connections of guests.
type calls struct {
	listener net.Listener
	received chan call
}

// call is one connection, and what it said.
type call struct {
	at    time.Time // it was accepted
	token string
}

// answerCalls listens at an address that guests reach.
func answerCalls(ctx context.Context, host string) (*calls, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	c := &calls{listener: l, received: make(chan call, claims)}
	go c.accept()
	return c, nil
}

func (c *calls) address() string { return c.listener.Addr().String() }

func (c *calls) close() { _ = c.listener.Close() }

func (c *calls) accept() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		at := time.Now()
		go func() {
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(at.Add(callLimit))
			line, err := bufio.NewReaderSize(conn, 64).ReadSlice('\n')
			if err == nil {
				c.received <- call{at, strings.TrimSpace(string(line))}
			}
		}()
	}
}

// await waits for the call with a token, and returns when it was accepted. Others are none of ours.
func (c *calls) await(ctx context.Context, token string) (time.Time, error) {
	limit := time.NewTimer(callLimit)
	defer limit.Stop()
	for {
		select {
		case got := <-c.received:
			if got.token == token {
				return got.at, nil
			}
		case <-limit.C:
			return time.Time{}, fmt.Errorf("no command ran in the guest within %s", callLimit)
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
}

package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// proofTime bounds the start of one saved version.
const proofTime = 90 * time.Second

// prove starts an instance of every version that a done save has left in the registry, on the given
// node or on any, and checks whether the guest has its content. It returns how many versions were
// tried.
func (s *scene) prove(ctx context.Context, w world, node string, f *findings) int {
	held := map[tagged]bool{}
	for _, v := range w.Versions {
		held[tagged{v.Template, v.Tag}] = true
	}
	var mu sync.Mutex // guards f and tried
	var wg sync.WaitGroup
	tried, slots := 0, make(chan struct{}, s.capacity)
	for _, sv := range savedIn(s.history.all(), w.Requests, new(findings)) {
		if sv.Status != saveDone || !held[tagged{sv.Request.TemplateID, sv.Request.Tag}] {
			continue
		}
		tried++
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := s.proveOne(ctx, sv, node); err != nil {
				mu.Lock()
				defer mu.Unlock()
				f.wrong("version %s of template %s (save request %s): %v", sv.Request.Tag, sv.Request.TemplateID, sv.ID,
					err)
			}
		})
	}
	wg.Wait()
	return tried
}

// proveOne starts one version, holds what its guest prints against what was saved, and
// terminates the instance.
func (s *scene) proveOne(ctx context.Context, sv saved, node string) error {
	ids, err := s.createProof(ctx, order{
		Template: sv.Request.TemplateID, Tag: sv.Request.Tag, ExternalID: "proof-" + sv.Request.Tag, Count: 1,
		Node:   node,
		Script: []byte(proofScript), Monitoring: true,
	})
	if err != nil {
		return fmt.Errorf("cannot be started: %w", err)
	}
	inst, err := s.printed(ctx, ids[0])
	if err == nil {
		err = compare(sv.expected, inst.StartupScript.Stdout)
	}
	if e := s.client.terminate(ctx, ids[0]); e != nil {
		err = errors.Join(err, fmt.Errorf("cannot be terminated: %w", e))
	}
	return err
}

// createProof creates an instance. For some seconds after the registry was killed the controller does not ask it, and
// refuses versions that it does not know.
func (s *scene) createProof(ctx context.Context, o order) (ids []string, err error) {
	for deadline := time.Now().Add(proofTime); ; {
		ids, err = s.client.create(ctx, o)
		if err == nil || !strings.Contains(err.Error(), "the registry cannot be queried") ||
			time.Now().After(deadline) || !rig.Pause(ctx, 100*time.Millisecond) {
			return ids, err
		}
	}
}

// printed waits until an instance has started and its script has ended.
func (s *scene) printed(ctx context.Context, id string) (inst api.Instance, err error) {
	for deadline := time.Now().Add(proofTime); time.Now().Before(deadline); {
		switch inst, err = s.client.inspect(ctx, id); {
		case err != nil:
		case inst.InstanceState == "Error":
			return inst, fmt.Errorf("its start ended in Error: %s", inst.Message)
		case inst.InstanceState == "Started" && inst.StartupScript != nil:
			return inst, nil
		}
		if !rig.Pause(ctx, 100*time.Millisecond) {
			return inst, ctx.Err()
		}
	}
	return inst, fmt.Errorf("it is %s after %s", inst.InstanceState, proofTime)
}

// compare holds the lines that a guest printed against those that were saved.
func compare(w saveExpectation, stdout string) error {
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	for _, want := range w.Holds {
		if !slices.Contains(lines, want) {
			return fmt.Errorf("its guest does not have %q; it printed %q", want, stdout)
		}
	}
	for _, none := range w.Lacks {
		if slices.Contains(lines, none) {
			return fmt.Errorf("its guest still has %q; it printed %q", none, stdout)
		}
	}
	return nil
}

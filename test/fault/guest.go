package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// guest is one instance of the qemu-save target.
type guest struct {
	play *guestPlay
	name string // unique; what the guest writes down
	id   string
	tags int
}

// start starts a guest on the first node.
func (p *guestPlay) start(ctx context.Context, name string) (*guest, error) {
	ids, err := p.client.create(ctx, order{
		Template: p.source.template, Tag: p.source.tag, ExternalID: name, Count: 1, Node: p.home,
		Script: startScript(name), Monitoring: true,
	})
	if err != nil {
		return nil, err
	}
	if _, err := p.printed(ctx, ids[0]); err != nil {
		return nil, errors.Join(err, p.client.terminate(ctx, ids[0]))
	}
	return &guest{play: p, name: name, id: ids[0]}, nil
}

// begin asks for what a blow is about to disturb.
func (g *guest) begin(ctx context.Context, b faultPlan) (request string, begun time.Time, err error) {
	if !b.restart {
		request, err = g.save(ctx, b)
		return request, time.Time{}, err
	}
	inst, err := g.play.client.inspect(ctx, g.id)
	if err != nil {
		return "", begun, err
	}
	return "", startDate(inst), g.play.client.restart(ctx, inst)
}

// newSave returns a save of the guest into a separate template.
func (g *guest) newSave(suspend bool) saveExpectation {
	g.tags++
	tag := fmt.Sprintf("%s-%d", g.name, g.tags)
	w := saveExpectation{
		saveOrder: saveOrder{Instance: g.id, Tag: tag, NewName: tag, Suspend: suspend},
		Holds:     []string{"disk " + g.name},
	}
	if suspend {
		w.Holds = append(w.Holds, "memory "+g.name)
	} else {
		w.Lacks = append(w.Lacks, "memory "+g.name)
	}
	return w
}

func (g *guest) save(ctx context.Context, b faultPlan) (string, error) {
	w := g.newSave(b.suspend)
	w.SanityTest, w.May = b.test, slices.Clone(mayFail[b.kill])
	if b.script {
		w.scripted()
	}
	return g.play.client.save(ctx, w)
}

// guestTime bounds the end of what a guest was asked to do.
const guestTime = 150 * time.Second

// await waits until a save has ended; the final checks report one that does not end.
func (g *guest) await(ctx context.Context, request string) error {
	for deadline := time.Now().Add(guestTime); time.Now().Before(deadline); {
		_, _ = g.play.client.look(ctx, g.id) // for the history
		r, err := g.play.client.request(ctx, request)
		if err == nil && r.Status != savePending {
			return nil
		}
		if !rig.Pause(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("its save did not end within %s", guestTime)
}

// restarted waits until a guest runs again, or has ended.
func (g *guest) restarted(ctx context.Context, before time.Time) error {
	for deadline := time.Now().Add(guestTime); time.Now().Before(deadline); {
		inst, err := g.play.client.inspect(ctx, g.id)
		if err == nil && (inst.InstanceState != "Started" || startDate(inst).After(before)) {
			return nil
		}
		if !rig.Pause(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("its restart did not end within %s", guestTime)
}

// look checks a guest after its save or restart: it has ended after a successful save, it is in
// Error with a reason when its QEMU was killed, and otherwise it answers and has its content.
func (g *guest) look(ctx context.Context, b faultPlan, cut bool) error {
	dead := cut && b.kill == itsQEMU
	final := []string{"Error", "Started", notFound}
	if dead && b.suspend {
		final = []string{"Error", notFound} // it is not started again
	}
	state, err := g.rest(ctx, final)
	switch {
	case err != nil || state == notFound:
		return err
	case state == "Error" && dead:
		return nil
	case state == "Error":
		return errors.New("it is in Error although its QEMU was not killed")
	}
	return g.probe(ctx, b.suspend && !b.restart)
}

// rest waits until the guest's instance is in one of some states and returns it; one in Error must
// have a reason.
func (g *guest) rest(ctx context.Context, final []string) (string, error) {
	for deadline := time.Now().Add(guestTime); ; {
		inst, err := g.play.client.inspect(ctx, g.id)
		switch state := inst.InstanceState; {
		case err != nil:
		case state == "Error" && inst.Message == "":
			return state, errors.New("it is in Error without a reason")
		case slices.Contains(final, state):
			return state, nil
		}
		if !time.Now().Before(deadline) {
			return "", fmt.Errorf("it is still %s after %s: %w", inst.InstanceState, guestTime, err)
		}
		if !rig.Pause(ctx, 100*time.Millisecond) {
			return "", ctx.Err()
		}
	}
}

// probe asks the guest what it has, by a save whose script prints it and fails.
func (g *guest) probe(ctx context.Context, memory bool) error {
	w := g.newSave(true)
	expected := w
	if !memory {
		expected.Holds = expected.Holds[:1]
	}
	w.Script, w.Fails, w.MustSucceed = proofScript+"exit 7\n", true, true
	id, err := g.play.client.save(ctx, w)
	if err != nil {
		return fmt.Errorf("it cannot be asked: %w", err)
	}
	if err := g.await(ctx, id); err != nil {
		return err
	}
	r, err := g.play.client.request(ctx, id)
	if err != nil || r.ScriptResult == nil {
		return fmt.Errorf("it does not answer: %v %w", r.Error, err)
	}
	if err := compare(expected, r.ScriptResult.Stdout); err != nil {
		return fmt.Errorf("after it was disturbed: %w", err)
	}
	return nil
}

// end terminates the guest if it is still there.
func (g *guest) end(ctx context.Context) error {
	err := g.play.client.terminate(ctx, g.id)
	if err != nil && !errors.Is(err, rig.Refusal("Not found")) {
		return err
	}
	return nil
}

package fault

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// The nodes of the qemu-save target: the first has the guests that are saved, the
// second starts what they were saved as.
const (
	firstNode  = "first"
	secondNode = "second"
)

// qemuSaveTarget kills the agent or the QEMU process of real guests at random moments of their
// saves and restarts. Guests are few and the rounds follow each other; it does fewer kills than
// were requested, since each needs a separate guest.
func qemuSaveTarget(ctx context.Context, s *scene) (r result, err error) {
	disk, err := s.Guest(ctx, s.bench.dir)
	if err != nil {
		return r, err
	}
	base, err := s.cloud.PushGuest(ctx, disk)
	if err != nil {
		return r, err
	}
	for _, name := range []string{firstNode, secondNode} {
		if err := s.join(ctx, name, qemuCapacity, "qemu"); err != nil {
			return r, err
		}
	}
	if err := s.awaitNodes(ctx, 2); err != nil {
		return r, err
	}
	s.machines = s.guests
	s.seeds = map[string]int{base: 1}
	s.rules = rules{Errors: []string{"QEMU ended", lostScript}}
	s.calmTime, s.capacity = time.Minute, qemuCapacity
	play, err := s.warm(ctx, base, firstNode)
	if err != nil {
		return r, err
	}
	for i := 0; s.kills < s.planned; i++ {
		if i > 3*s.planned {
			return r, fmt.Errorf("only %d of %d rounds met what they were to cut short", s.kills, i)
		}
		if err := play.round(ctx, i); err != nil {
			return r, err
		}
	}
	return s.checkSaved(ctx, trial{node: play.nodes[secondNode], found: play.findings})
}

// guests returns the VMs of both nodes.
func (s *scene) guests() (all []machine, err error) {
	for _, name := range []string{firstNode, secondNode} {
		found, err := qemuMachines(filepath.Join(s.dir, name), filepath.Join(s.dir, name, "vms"))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// faultPlan is what a round does to a guest, and what is killed in the middle of it.
type faultPlan struct {
	kill    killTarget
	restart bool
	suspend bool
	test    bool // with a sanity test
	script  bool // before the save
}

// killTarget is what is killed.
type killTarget string

// mayFail are parts of the messages with which a save may fail when someone is killed
// in it; the agent's death may only cost the outcome of a script.
var mayFail = map[killTarget][]string{
	itsQEMU: {"QEMU ended", "the QEMU process has exited"},
	itsCopy: {"The sanity test failed"},
}

// The victims of a blow.
const (
	theAgent killTarget = "the agent"
	itsQEMU  killTarget = "QEMU"
	itsCopy  killTarget = "the copy's QEMU" // of the VM that a sanity test starts
)

// blows are taken one after another.
var blows = []faultPlan{
	{kill: theAgent, suspend: true},
	{kill: itsQEMU, suspend: true},
	{kill: theAgent, restart: true},
	{kill: theAgent, suspend: true, test: true},
	{kill: itsCopy, suspend: true, test: true},
	{kill: theAgent, script: true},
	{kill: itsQEMU, restart: true},
	{kill: theAgent, suspend: true, script: true},
	{kill: itsQEMU, suspend: true, test: true, script: true},
}

func (b faultPlan) String() string {
	what := "a save of a guest that is shut down"
	if b.restart {
		return string(b.kill) + " in a restart"
	}
	if b.suspend {
		what = "a save of a running guest"
	}
	if b.test {
		what += " with a test"
	}
	if b.script {
		what += " after a script"
	}
	return string(b.kill) + " in " + what
}

// guestPlay is the rounds of the qemu-save target.
type guestPlay struct {
	*scene
	nodes    map[string]string // name -> id
	home     string            // id of the node that has the guests
	source   tagged            // a suspended version, which starts fast
	findings findings          // of guests that did not answer as they must
}

// warm makes a suspended version of the base, undisturbed, on a node. Guests start fast
// from it.
func (s *scene) warm(ctx context.Context, base, node string) (*guestPlay, error) {
	ids, err := s.client.nodeIDs(ctx)
	if err != nil {
		return nil, err
	}
	p := &guestPlay{scene: s, nodes: ids, home: ids[node], source: tagged{base, seedTag}}
	g, err := p.start(ctx, "warm")
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	r, err := g.save(ctx, faultPlan{suspend: true, test: true, script: true})
	if err == nil {
		err = g.await(ctx, r)
	}
	if err != nil {
		return nil, fmt.Errorf("an undisturbed save: %w", err)
	}
	req, err := s.client.request(ctx, r)
	if err != nil || req.Status != saveDone {
		return nil, fmt.Errorf("an undisturbed save ended %s: %v %w", req.Status, req.Error, err)
	}
	p.source = tagged{req.Request.TemplateID, req.Request.Tag}
	s.say("an undisturbed save took %s", time.Since(begin).Round(time.Millisecond))
	return p, nil
}

// round strikes a separate guest once and ends the guest.
func (p *guestPlay) round(ctx context.Context, i int) error {
	b := blows[i%len(blows)]
	g, err := p.start(ctx, fmt.Sprintf("guest-%d", i))
	if err != nil {
		p.findings.wrong("a guest that nobody disturbed: %v", err)
		return ctx.Err()
	}
	request, begun, err := g.begin(ctx, b)
	if err != nil {
		return err
	}
	cut, err := p.cut(ctx, g, b, begun)
	if err != nil {
		return err
	}
	if b.restart {
		err = g.restarted(ctx, begun)
	} else {
		err = g.await(ctx, request)
	}
	if err == nil {
		err = g.look(ctx, b, cut)
	}
	if err != nil {
		p.findings.wrong("guest %s after the kill of %s: %v", g.id, b, err)
	}
	return g.end(ctx)
}

// cut kills the target of the plan at a random moment of a save or a restart, if that is still in
// progress then.
func (p *guestPlay) cut(ctx context.Context, g *guest, b faultPlan, begun time.Time) (bool, error) {
	p.waitKillPoint(ctx, g, b)
	inst, err := p.client.inspect(ctx, g.id)
	if err != nil {
		return false, err
	}
	busy := inst.InstanceState == "Pushing" || b.restart && !startDate(inst).After(begun)
	if !busy {
		p.say("%s: too late, it is %s", b, inst.InstanceState)
		return false, nil
	}
	if b.kill != theAgent {
		return p.cutQEMU(ctx, g, b, step(inst))
	}
	agent := p.scene.nodes[0]
	if err := agent.Kill(); err != nil {
		return false, err
	}
	p.killed("%s, %s", b, step(inst))
	p.hits[string(b.kill)]++
	rig.Pause(ctx, p.between(0, time.Second))
	return true, agent.Start()
}

// waitKillPoint waits for a random moment: of a restart by time, of a save by one of its steps.
func (p *guestPlay) waitKillPoint(ctx context.Context, g *guest, b faultPlan) {
	if b.restart {
		rig.Pause(ctx, p.between(0, 2*time.Second))
		return
	}
	steps := []string{"waiting", "saving", "pushing"}
	if b.script {
		steps = append(steps, "script")
	}
	if b.test {
		steps = append(steps, "testing")
	}
	if b.kill == itsCopy {
		steps = []string{"testing"}
	}
	want := saveStep(steps[p.rng.IntN(len(steps))])
	for rig.Pause(ctx, 10*time.Millisecond) {
		inst, err := p.client.inspect(ctx, g.id)
		if err == nil && reached(inst, want) {
			break
		}
	}
	rig.Pause(ctx, p.between(0, 300*time.Millisecond))
}

// cutQEMU kills the QEMU process of a guest or of its copy.
func (p *guestPlay) cutQEMU(ctx context.Context, g *guest, b faultPlan, at string) (bool, error) {
	dir, patience := filepath.Join(p.dir, firstNode, "vms", g.id), 1
	if b.kill == itsCopy {
		dir, patience = dir+checkSuffix, 200
	}
	for range patience {
		live, err := rig.QEMUs(dir)
		if err != nil {
			return false, err
		}
		if len(live) > 0 {
			rig.Pause(ctx, p.between(0, 300*time.Millisecond))
			killed, err := live[0].Kill(dir)
			if killed {
				p.killed("%s, %s", b, at)
				p.hits[string(b.kill)]++
			}
			return killed, err
		}
		rig.Pause(ctx, 10*time.Millisecond)
	}
	p.say("%s: there is no process now, %s", b, at)
	return false, nil
}

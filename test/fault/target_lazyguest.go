package fault

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/rig"
)

const (
	guestDataSize = 64 << 20
	// The part of the second disk that is held. A guest that boots reads the beginning and the end of each disk.
	heldFrom, heldTo = 4 << 20, guestDataSize - 4<<20
	// guestOutage is how long the registry is away while a guest waits for it.
	guestOutage = 60 * time.Second
	lazyNode    = "node"
)

// The startup script reads the second disk after it has ended, since an agent that is killed does not know how scripts
// ended. The script of a save prints the sum, and fails, so that the save ends there.
const (
	lazyGuestScript = "setsid sh -c 'sha256sum < /dev/vdb > /sum; touch /read' > /dev/null 2>&1 < /dev/null &\n"
	lazySumScript   = "while [ ! -e /read ]; do sleep 0.2; done\ncat /sum\nexit 7\n"
)

// lazyGuestStrikes are the faults, one in each run.
var lazyGuestStrikes = [...]string{registryAway, lazyKill, lazyAgent, lazyReboot}

// lazyGuests is what the runs of the target share.
type lazyGuests struct {
	*scene
	proxy             *faultyProxy
	template, content string
	dataRoot          string // layer of the second disk
	dataSum           string // SHA-256 of the second disk
	seenCause         bool   // an instance that waited named the registry
}

// lazyGuestTarget starts guests on a real node before their template is there, injects a fault while they wait for it,
// and compares what they read, and the file that remains, with what was pushed.
func lazyGuestTarget(ctx context.Context, s *scene) (r result, err error) {
	disk, err := s.Guest(ctx, s.bench.dir)
	if err != nil {
		return r, err
	}
	address := strings.TrimPrefix(s.cloud.Front, "http://")
	proxy, err := newFaultyProxyAt(ctx, address, s.cloud.Registry, s.newRand())
	if err != nil {
		return r, err
	}
	defer func() {
		proxy.release()
		err = errors.Join(err, proxy.close())
	}()
	g := &lazyGuests{scene: s, proxy: proxy}
	if err := g.push(ctx, disk); err != nil {
		return r, err
	}
	node, err := s.cloud.Join(ctx, rig.NodeOptions{
		Name: lazyNode, Capacity: 1, Driver: "qemu", Args: []string{"--lazy-pull", "on"},
	})
	if node != nil {
		s.nodes = append(s.nodes, node)
	}
	if err != nil {
		return r, err
	}
	if err := s.awaitNodes(ctx, 1); err != nil {
		return r, err
	}
	r = s.result()
	for i := range s.planned {
		err := g.run(ctx, i, lazyGuestStrikes[i%len(lazyGuestStrikes)])
		switch {
		case ctx.Err() != nil:
			return r, context.Cause(ctx)
		case errors.Is(err, errWrongBytes):
			r.Wrong++
		case err != nil:
			r.Stuck++
		default:
			r.Acknowledged++
		}
		if err != nil {
			r.Problems = append(r.Problems, fmt.Sprintf("run %d: %v", i, err))
		}
	}
	if !g.seenCause {
		r.Problems = append(r.Problems, "no instance that waited for the registry named it")
		r.Wrong++
	}
	r.Kills, r.Others, r.Faults, r.mustMeet = s.kills, s.others, proxy.faults(), lazyGuestStrikes[:]
	return r, nil
}

// push puts a guest with a second disk of noise into the registry.
func (g *lazyGuests) push(ctx context.Context, disk string) error {
	noise := make([]byte, guestDataSize)
	for at := 0; at < len(noise); at += 8 {
		binary.LittleEndian.PutUint64(noise[at:], g.rng.Uint64())
	}
	sum := sha256.Sum256(noise)
	g.dataSum = hex.EncodeToString(sum[:])
	data := filepath.Join(g.dir, "data.raw")
	if err := os.WriteFile(data, noise, 0o600); err != nil {
		return err
	}
	client, err := transfer.New(transfer.Options{BaseURL: g.cloud.Registry})
	if err != nil {
		return err
	}
	defer client.Close()
	pushed, err := client.Push(ctx, transfer.PushOptions{
		Request: api.PushRequest{Name: "lazy-guest", Tag: "v1", Config: []byte(
			`{"ram":"256M","cpu":{"cores":1},"hard_drives":[{"file":"system.raw","format":"raw"},` +
				`{"file":"data.raw","format":"raw"}]}`)},
		Files: []transfer.PushFile{
			{Name: "system.raw", Disk: &diskfile.Disk{Path: disk, Format: "qcow2"}, Kind: api.FileDisk},
			{Name: "data.raw", Path: data, Kind: api.FileDisk, Format: "raw"},
		},
	})
	if err != nil {
		return err
	}
	m, err := client.PeekManifest(ctx, transfer.VersionRef{ID: pushed.ID, ContentID: pushed.ContentID})
	if err != nil {
		return err
	}
	g.template, g.content, g.dataRoot = pushed.ID, pushed.ContentID, m.Files[1].Layers[0].Root
	return nil
}

// isHeld reports whether a request is for the middle of the second disk.
func (g *lazyGuests) isHeld(r *http.Request) bool {
	var from int64
	_, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
	return err == nil && from >= heldFrom && from < heldTo && strings.Contains(r.URL.Path, g.dataRoot)
}

// run starts a guest on the node, which has nothing of its template, and injects one fault while the guest waits.
func (g *lazyGuests) run(ctx context.Context, i int, fault string) (err error) {
	g.say("run %d: %s", i, fault)
	g.proxy.begin(0, g.rng.IntN(6))
	g.proxy.hold(g.isHeld)
	defer g.proxy.release()
	id, err := g.startWaiting(ctx, fmt.Sprint("guest", i))
	if id != "" {
		defer func() { err = errors.Join(err, g.clean(context.WithoutCancel(ctx), id)) }()
	}
	if err != nil {
		return err
	}
	if fault != registryAway {
		g.proxy.count(fault)
	}
	switch fault {
	case registryAway:
		err = g.outage(ctx, id)
	case lazyKill:
		err = g.killFill()
	case lazyAgent:
		err = g.killAgent(ctx)
	case lazyReboot:
		return g.reboot(ctx, id, fmt.Sprint("again", i))
	}
	if err != nil {
		return err
	}
	g.proxy.release()
	return g.compare(ctx, id)
}

// startWaiting starts an instance and waits until its guest runs and waits for its second disk.
func (g *lazyGuests) startWaiting(ctx context.Context, name string) (id string, err error) {
	if id, err = g.create(ctx, name, false); err != nil {
		return "", err
	}
	what := fmt.Sprintf("instance %s to be Started, and its guest to wait for its disk", id)
	return id, g.eventually(ctx, what, func() (bool, error) {
		inst, err := g.client.inspect(ctx, id)
		if err != nil || inst.InstanceState == "Error" {
			return false, fmt.Errorf("the start failed: %s: %w", inst.Message, err)
		}
		fill, err := g.fill(ctx, id)
		return err == nil && inst.InstanceState == "Started" && fill != nil && fill.Waiting > 0, nil
	})
}

// create starts an instance, which is monitored if its startup script is watched. A controller that has not noticed yet
// that the registry is there refuses.
func (g *lazyGuests) create(ctx context.Context, name string, isMonitored bool) (id string, err error) {
	err = g.eventually(ctx, "the create of an instance", func() (bool, error) {
		ids, err := g.client.create(ctx, order{
			Template: g.template, Tag: "v1", ExternalID: name, Count: 1, Script: []byte(lazyGuestScript),
			Monitoring: isMonitored,
		})
		if err == nil {
			id = ids[0]
		}
		return err == nil, nil
	})
	return id, err
}

// fill asks how much of an instance's disks is on its node; nil: all.
func (g *lazyGuests) fill(ctx context.Context, id string) (*api.DiskFill, error) {
	var inst struct {
		Explain api.Explanation `json:"explain"`
	}
	err := g.client.Send(ctx, http.MethodGet, "/api/v1/vm?explain=1&id="+url.QueryEscape(id), nil, &inst)
	return inst.Explain.Fill, err
}

// outage takes the registry away while the guest waits for it, and kills the process that serves the guest's disks.
func (g *lazyGuests) outage(ctx context.Context, id string) error {
	g.proxy.setAway(true)
	defer g.proxy.setAway(false)
	g.proxy.release()
	end := time.Now().Add(guestOutage)
	if err := g.killFill(); err != nil {
		return err
	}
	for time.Now().Before(end) {
		if fill, err := g.fill(ctx, id); err == nil && fill != nil && fill.Problem != "" {
			g.seenCause = true
		}
		if !rig.Pause(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
	inst, err := g.client.inspect(ctx, id)
	if err != nil || inst.InstanceState != "Started" {
		return fmt.Errorf("after %s without the registry, the instance is %s: %s: %w", guestOutage, inst.InstanceState,
			inst.Message, err)
	}
	return nil
}

// killFill kills the processes of the node that serve disks.
func (g *lazyGuests) killFill() error {
	pids, err := fillProcesses(g.dir)
	if err != nil || len(pids) == 0 {
		return fmt.Errorf("%d processes serve disks: %w", len(pids), err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		g.killed("process %d, which serves disks", pid)
	}
	return nil
}

// fillProcesses returns the processes that serve disks of nodes below a directory.
func fillProcesses(dir string) (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		args := strings.Split(string(raw), "\x00")
		if err == nil && len(args) > 2 && args[1] == "fill" && strings.HasPrefix(args[2], dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// killAgent kills the agent and starts it again.
func (g *lazyGuests) killAgent(ctx context.Context) error {
	if err := g.nodes[0].Kill(); err != nil {
		return err
	}
	g.killed("the agent")
	rig.Pause(ctx, g.between(0, 2*time.Second))
	return g.nodes[0].Start()
}

// reboot ends all processes of the node at the same time, as a reboot does. The instance is lost with a reason, and the
// next one continues its pull.
func (g *lazyGuests) reboot(ctx context.Context, id, name string) (err error) {
	if err := g.nodes[0].Kill(); err != nil {
		return err
	}
	g.killed("all processes of the node")
	machines, err := rig.QEMUs(g.dir)
	if err != nil || len(machines) == 0 {
		return fmt.Errorf("%d VMs run: %w", len(machines), err)
	}
	for _, q := range machines {
		if _, err := q.Kill(g.dir); err != nil {
			return err
		}
	}
	if err := g.killFill(); err != nil {
		return err
	}
	if err := g.nodes[0].Start(); err != nil {
		return err
	}
	err = g.eventually(ctx, "the lost instance to be in Error", func() (bool, error) {
		inst, err := g.client.inspect(ctx, id)
		return err == nil && inst.InstanceState == "Error" && inst.Message != "", nil
	})
	if err != nil {
		return err
	}
	if err := g.remove(ctx, id); err != nil {
		return err
	}
	next, err := g.create(ctx, name, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.remove(context.WithoutCancel(ctx), next)) }()
	g.proxy.release()
	if _, err := g.printed(ctx, next); err != nil { // the save's script does not run at the same time
		return err
	}
	return g.compare(ctx, next)
}

// compare compares what the guest read, and the file that remains, with what was pushed.
func (g *lazyGuests) compare(ctx context.Context, id string) error {
	got, err := g.askSum(ctx, id)
	if err != nil {
		return err
	}
	if sum := strings.Fields(got); len(sum) == 0 || sum[0] != g.dataSum {
		return fmt.Errorf("%w: the guest read %q instead of %s", errWrongBytes, got, g.dataSum)
	}
	version := filepath.Join(g.dir, lazyNode, "templates", g.content)
	err = g.eventually(ctx, "an ordinary version to remain", func() (bool, error) {
		_, err := os.Stat(version + ".fill")
		return errors.Is(err, os.ErrNotExist), nil
	})
	if err != nil {
		return err
	}
	return compareFile(filepath.Join(version, "data.raw"), g.dataSum)
}

// askSum asks the guest for the sum of what it read, by a save, which waits until the VM reads from files.
func (g *lazyGuests) askSum(ctx context.Context, id string) (sum string, err error) {
	var request string
	err = g.eventually(ctx, "a save of instance "+id, func() (bool, error) {
		w := saveExpectation{
			saveOrder: saveOrder{
				Instance: id, Tag: "sum-" + id, NewName: "sum-" + id, Suspend: true, MustSucceed: true,
			},
			Fails: true, Script: lazySumScript,
		}
		var refused error
		request, refused = g.client.save(ctx, w) // until the script of the start has ended
		return refused == nil, nil
	})
	if err != nil {
		return "", err
	}
	return sum, g.eventually(ctx, "the script of the save of instance "+id, func() (bool, error) {
		r, err := g.client.request(ctx, request)
		switch {
		case err != nil || r.Status == savePending:
			return false, nil
		case r.ScriptResult == nil:
			return false, fmt.Errorf("the save of instance %s ended without its script: %+v", id, r.Error)
		}
		sum = r.ScriptResult.Stdout
		return true, nil
	})
}

// remove terminates an instance and waits for its end.
func (g *lazyGuests) remove(ctx context.Context, id string) error {
	return g.eventually(ctx, "the end of instance "+id, func() (bool, error) {
		_ = g.client.terminate(ctx, id) // asked again until it is gone
		state, err := g.client.look(ctx, id)
		return err == nil && state == notFound, nil
	})
}

// clean ends an instance and removes the template from the node.
func (g *lazyGuests) clean(ctx context.Context, id string) error {
	g.proxy.release()
	err := g.remove(ctx, id)
	return errors.Join(err, g.eventually(ctx, "the removal of the template from the node", func() (bool, error) {
		body := map[string]string{"id": g.template}
		_ = g.client.Send(ctx, http.MethodDelete, "/api/v1/registry/vm/remove", body, nil)
		left, err := filepath.Glob(filepath.Join(g.dir, lazyNode, "templates", g.content+"*"))
		return err == nil && len(left) == 0, nil
	}))
}

// eventually waits until a condition holds.
func (g *lazyGuests) eventually(ctx context.Context, what string, is func() (bool, error)) error {
	for end := time.Now().Add(guestTime); ; {
		ok, err := is()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("waited %s for %s", guestTime, what)
		case !rig.Pause(ctx, 200*time.Millisecond):
			return context.Cause(ctx)
		}
	}
}

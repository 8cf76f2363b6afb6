package macpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// settingRange holds the list of managed addresses, as a range; "" after a purge.
const settingRange = "mac-range"

// Options configures a Pool.
type Options struct {
	Range   farm.MACRange // what the list is filled with
	First   farm.MAC      // where the search for a free one begins; other replicas begin elsewhere
	Orphans Orphans
}

// Orphans reports the addresses of VMs without a record, on nodes of all replicas.
type Orphans interface {
	// MACs returns the addresses of those whose details are known.
	MACs() map[farm.MAC]struct{}
	// Unidentified reports whether there are some whose details are not known yet.
	Unidentified() bool
	// Unreported returns the name of a node that is still to report its inventory after the start of
	// this process; ok is false when there is none.
	Unreported() (node string, ok bool)
}

// Pool assigns addresses of the managed list to instances. It is nil where addresses are not
// managed; its methods may be called then.
//
// An address is assigned in the transaction that creates the instance, which also creates the
// address's record: that must not exist yet. If no address can be assigned then, the instance waits
// without being shown to the scheduler, and the leader assigns one later.
type Pool struct {
	db   record.DB
	opts Options
	wake chan struct{} // has a value when one may be assigned that could not be before

	mu      lockorder.Mutex[lockorder.MACPool] // guards the fields below
	next    farm.MAC                           // where the search for a free one begins
	picked  map[farm.MAC]struct{}              // of running transactions of this process
	lacking map[string]struct{}                // ids of instances that wait for one
	worn    map[farm.MAC]int                   // addresses that the VMs of instances report -> how many
}

// New returns the pool of a controller that manages addresses.
func New(db record.DB, opts Options) *Pool {
	return &Pool{
		db: db, opts: opts, wake: make(chan struct{}, 1), next: opts.First,
		picked: map[farm.MAC]struct{}{}, lacking: map[string]struct{}{}, worn: map[farm.MAC]int{},
	}
}

// errUnmanaged is the refusal of a controller that manages no addresses.
var errUnmanaged = farm.Refused(
	"MAC addresses are not managed by this controller: set SVC_MANAGE_MAC_ADDRESSES and SVC_MAC_ADDR_RANGE")

// Fill fills the list if that has never been done.
func (p *Pool) Fill(ctx context.Context) error {
	if p == nil {
		return nil
	}
	if _, _, ok := p.db.Tables.Settings.Get(settingRange); ok {
		return nil
	}
	err := p.db.Store.Commit(ctx, store.Put(p.db.Tables.Settings, settingRange,
		&record.Setting{Value: p.opts.Range.String()}, store.IfAbsent))
	if errors.Is(err, store.ErrConflict) { // another replica was first
		return nil
	}
	return err
}

// Populate fills the list of managed addresses with the configured range.
func (p *Pool) Populate(ctx context.Context) error {
	if p == nil {
		return errUnmanaged
	}
	return p.set(ctx, p.opts.Range)
}

// Purge empties the list. Instances keep their addresses.
func (p *Pool) Purge(ctx context.Context) error {
	if p == nil {
		return errUnmanaged
	}
	return p.set(ctx, farm.MACRange{})
}

func (p *Pool) set(ctx context.Context, to farm.MACRange) error {
	return p.db.Store.Commit(ctx, store.Put(p.db.Tables.Settings, settingRange, &record.Setting{Value: to.String()},
		store.Any))
}

// list returns the addresses that may be assigned.
func (p *Pool) list() farm.MACRange {
	s, _, ok := p.db.Tables.Settings.Get(settingRange)
	if !ok || s.Value == "" {
		return farm.MACRange{}
	}
	r, err := farm.ParseMACRange(s.Value)
	if err != nil {
		return farm.MACRange{}
	}
	return r
}

// Load reads the existing records.
func (p *Pool) Load() {
	if p == nil {
		return
	}
	for _, inst := range p.db.Tables.Instances.All() {
		p.note(nil, inst)
	}
}

// Observe follows the records.
func (p *Pool) Observe(events []store.Event) {
	if p == nil {
		return
	}
	for _, e := range events {
		switch {
		case e.Kind == record.KindInstance:
			was, _ := e.Old.(*farm.Instance)
			now, _ := e.New.(*farm.Instance)
			p.note(was, now)
		case e.Kind == record.KindMAC && e.New == nil, e.Kind == record.KindSetting && e.ID == settingRange:
			p.wakeRun()
		}
	}
}

// note processes a change of an instance.
func (p *Pool) note(was, now *farm.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := reportedMAC(was); ok {
		if p.worn[a]--; p.worn[a] <= 0 {
			delete(p.worn, a)
		}
	}
	if a, ok := reportedMAC(now); ok {
		p.worn[a]++
	}
	if now != nil && p.Lacks(now) {
		p.lacking[now.ID] = struct{}{}
		p.wakeRun()
	} else if was != nil {
		delete(p.lacking, was.ID)
	}
}

// reportedMAC returns the address that the VM of an instance reports.
func reportedMAC(i *farm.Instance) (farm.MAC, bool) {
	if i == nil || i.VM == nil || i.VM.MAC == "" {
		return 0, false
	}
	a, err := farm.ParseMAC(i.VM.MAC)
	return a, err == nil
}

func (p *Pool) wakeRun() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Retry wakes the pool after a node has reported its inventory, or details of it.
func (p *Pool) Retry() {
	if p == nil {
		return
	}
	p.mu.Lock()
	waits := len(p.lacking) > 0
	p.mu.Unlock()
	if waits {
		p.wakeRun()
	}
}

// Lacks reports whether an instance has to wait for an address first. A suspended version keeps the
// one that it was saved with.
func (p *Pool) Lacks(i *farm.Instance) bool {
	return p != nil && i.MAC == "" && i.AwaitsPlacement() && !i.Template.Suspended
}

// Check refuses a requested address that cannot be assigned.
func (p *Pool) Check(o farm.StartOptions) error {
	switch {
	case o.MACAddress == "":
		return nil
	case p == nil:
		return farm.Refused(
			"mac_address cannot be set: managed MAC addresses (SVC_MANAGE_MAC_ADDRESSES) are disabled; leave it out")
	}
	a, err := farm.ParseMAC(o.MACAddress)
	if err != nil {
		return farm.Invalid("mac_address", "%s", err)
	}
	if list := p.list(); !list.Contains(a) {
		return farm.Refused("mac_address %s cannot be assigned: it is not in the managed addresses (%s)",
			a, cmp.Or(list.String(), "which is empty"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if user := p.userLocked(a, p.opts.Orphans.MACs()); user != "" {
		return farm.Refused("mac_address %s cannot be assigned: it is in use by %s", a, user)
	}
	return nil
}

// Assign assigns new instances their addresses, as far as any are free now. No other call in this
// process gets them until release is called, when the instances are written or not.
func (p *Pool) Assign(instances []*farm.Instance) (release func()) {
	if p == nil {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var taken []farm.MAC
	if p.undecided() == "" {
		orphanMACs := p.opts.Orphans.MACs()
		for _, inst := range instances {
			if !p.Lacks(inst) {
				continue
			}
			a, ok := p.pickLocked(inst.Options.MACAddress, orphanMACs)
			if !ok {
				break
			}
			inst.MAC = a.String()
			taken = append(taken, a)
		}
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, a := range taken {
			delete(p.picked, a)
		}
	}
}

// pickLocked finds a free address: the requested one, else the next one.
func (p *Pool) pickLocked(want string, orphanMACs map[farm.MAC]struct{}) (farm.MAC, bool) {
	list := p.list()
	if want != "" {
		a, err := farm.ParseMAC(want)
		if err != nil || !list.Contains(a) || p.userLocked(a, orphanMACs) != "" {
			return 0, false
		}
		p.picked[a] = struct{}{}
		return a, true
	}
	a, ok := p.findLocked(list, orphanMACs)
	if ok {
		p.picked[a] = struct{}{}
		p.next = a - list.From + 1
	}
	return a, ok
}

// findLocked finds the next free address of a list. It ends after at most one step more than addresses are in use.
func (p *Pool) findLocked(list farm.MACRange, orphanMACs map[farm.MAC]struct{}) (farm.MAC, bool) {
	size := farm.MAC(list.Count())
	for i := range size {
		a := list.From + (p.next+i)%size
		if p.userLocked(a, orphanMACs) == "" {
			return a, true
		}
	}
	return 0, false
}

// userLocked returns the user of an address; "" when it is free.
func (p *Pool) userLocked(a farm.MAC, orphanMACs map[farm.MAC]struct{}) string {
	if r, _, ok := p.db.Tables.MACs.Get(a.String()); ok {
		return "instance " + r.InstanceID
	}
	if _, ok := p.picked[a]; ok {
		return "an instance that is being started"
	}
	if _, ok := orphanMACs[a]; ok {
		return "an orphaned VM"
	}
	if p.worn[a] > 0 {
		return "the VM of an instance"
	}
	return ""
}

// undecided returns why no address is assigned for the moment: after a restore, or a restart, there
// may be VMs with addresses that have no record. "" when none may exist.
func (p *Pool) undecided() string {
	if node, ok := p.opts.Orphans.Unreported(); ok {
		return fmt.Sprintf("waits for the inventory of node %s", node)
	}
	if p.opts.Orphans.Unidentified() {
		return "waits for the MAC addresses of orphaned VMs"
	}
	return ""
}

// beingAssigned is why an instance waits for an address that is free.
const beingAssigned = "waits for a MAC address: one is free, and is being assigned"

// Reasons returns a function that returns why an instance waits for an address. What is the same for
// all instances is computed one time.
func (p *Pool) Reasons() func(*farm.Instance) string {
	if p == nil {
		return nil
	}
	undecided, list := sync.OnceValue(p.undecided), sync.OnceValue(p.list)
	orphanMACs := sync.OnceValue(p.opts.Orphans.MACs)
	free := sync.OnceValue(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		_, ok := p.findLocked(list(), orphanMACs())
		return ok
	})
	return func(i *farm.Instance) string {
		if why := undecided(); why != "" {
			return why
		}
		if i.Options.MACAddress == "" && free() {
			return beingAssigned
		}
		return p.shortage(i, list(), orphanMACs)
	}
}

// shortage returns why an instance has none of the addresses of a list.
func (p *Pool) shortage(i *farm.Instance, list farm.MACRange, orphanMACs func() map[farm.MAC]struct{}) string {
	if list.Count() == 0 {
		return "waits for a MAC address: the list of managed addresses is empty (PUT /api/v1/macaddr fills it)"
	}
	if a, err := farm.ParseMAC(i.Options.MACAddress); err == nil {
		others := orphanMACs()
		p.mu.Lock()
		defer p.mu.Unlock()
		if !list.Contains(a) {
			return fmt.Sprintf("waits for the MAC address %s, which is not in the list of managed addresses", a)
		}
		user := p.userLocked(a, others)
		if user == "" {
			return beingAssigned
		}
		return fmt.Sprintf("waits for the MAC address %s, which %s has", a, user)
	}
	return fmt.Sprintf("waits for a MAC address: none of the %d of %s is free", list.Count(), list)
}

// How often instances without an address are tried again without a report.
const (
	RetryInterval = 5 * time.Second        // where the list has no address for them
	CheckInterval = 250 * time.Millisecond // where none is assigned for the moment, which may end with time
)

// Run assigns addresses to the instances that wait for one, as long as the leader term lasts.
func (p *Pool) Run(ctx context.Context, term *record.Term) {
	if p == nil {
		return
	}
	retry := time.NewTimer(RetryInterval)
	defer retry.Stop()
	for {
		if err := p.Serve(ctx, term); err != nil && ctx.Err() == nil {
			p.db.Log.WarnContext(ctx, "assigning MAC addresses failed; retrying", "error", err)
		}
		retry.Reset(p.retryInterval())
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-retry.C:
		}
	}
}

// retryInterval returns when instances that wait for an address are tried again.
func (p *Pool) retryInterval() time.Duration {
	p.mu.Lock()
	waits := len(p.lacking) > 0
	p.mu.Unlock()
	if waits && p.undecided() != "" {
		return CheckInterval
	}
	return RetryInterval
}

// Serve assigns the available addresses, to the oldest instances first.
func (p *Pool) Serve(ctx context.Context, term *record.Term) error {
	p.mu.Lock()
	ids := slices.Sorted(maps.Keys(p.lacking))
	p.mu.Unlock()
	var failed error
	for _, id := range ids {
		inst, rev, ok := p.db.Tables.Instances.Get(id)
		if !ok || !p.Lacks(inst) {
			continue
		}
		n := inst.Clone()
		release := p.Assign([]*farm.Instance{n})
		if n.MAC != "" {
			err := term.Commit(ctx,
				append(Take(p.db.Tables, n), store.Put(p.db.Tables.Instances, id, n, store.IfRev(rev)))...)
			if err != nil && !errors.Is(err, store.ErrConflict) { // after a concurrent change it is tried again
				failed = err
			}
		}
		release()
		if failed != nil || n.MAC == "" && n.Options.MACAddress == "" {
			return failed
		}
	}
	return nil
}

// Adoptable returns the managed address that the VM of an instance without one has.
func (p *Pool) Adoptable(i *farm.Instance) (address string, ok bool) {
	a, ok := reportedMAC(i)
	if p == nil || !ok || i.MAC != "" || !p.list().Contains(a) {
		return "", false
	}
	_, _, taken := p.db.Tables.MACs.Get(a.String())
	return a.String(), !taken
}

// Take returns the change that assigns an address to an instance; none when it has none.
func Take(t *record.Tables, i *farm.Instance) []store.Change {
	if i.MAC == "" {
		return nil
	}
	return []store.Change{store.Put(t.MACs, i.MAC, &farm.MACAddress{Address: i.MAC, InstanceID: i.ID}, store.IfAbsent)}
}

// Free returns the change that frees the address of an instance whose record is removed.
func Free(t *record.Tables, i *farm.Instance) []store.Change {
	if i.MAC == "" {
		return nil
	}
	if r, _, ok := t.MACs.Get(i.MAC); ok && r.InstanceID != i.ID {
		return nil
	}
	return []store.Change{store.Delete(t.MACs, i.MAC, store.Any)}
}

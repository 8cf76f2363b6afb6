package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// settingMACs holds the list of managed addresses, as a range; "" after a purge.
const settingMACs = "mac-range"

// macAllocator assigns addresses of the managed list to instances. It is nil where addresses are
// not managed; its methods may be called then.
//
// An address is assigned in the transaction that creates the instance, which also creates the
// address's record: that must not exist yet. If no address can be assigned then, the instance waits
// without being shown to the scheduler, and the leader assigns one later.
type macAllocator struct {
	c    *Controller
	wake chan struct{} // has a value when one may be assigned that could not be before

	mu      sync.Mutex            // guards the fields below
	next    farm.MAC              // where the search for a free one begins
	picked  map[farm.MAC]struct{} // of running transactions of this process
	lacking map[string]struct{}   // ids of instances that wait for one
	worn    map[farm.MAC]int      // addresses that the VMs of instances report -> how many
}

func newMACs(c *Controller) *macAllocator {
	if !c.opts.ManageMACs {
		return nil
	}
	return &macAllocator{
		c: c, wake: make(chan struct{}, 1), next: farm.MAC(rand.Uint64N(farm.MaxMACs)), //nolint:gosec // not a secret: it spreads the replicas
		picked: map[farm.MAC]struct{}{}, lacking: map[string]struct{}{}, worn: map[farm.MAC]int{},
	}
}

// errNoMACs is the refusal of a controller that manages no addresses.
var errNoMACs = farm.Refused("MAC addresses are not managed by this controller: set SVC_MANAGE_MAC_ADDRESSES and SVC_MAC_ADDR_RANGE")

// ensureMACs fills the list if that has never been done.
func (c *Controller) ensureMACs(ctx context.Context) error {
	if c.macs == nil {
		return nil
	}
	if _, _, ok := c.tables.Settings.Get(settingMACs); ok {
		return nil
	}
	err := c.store.Commit(ctx, store.Put(c.tables.Settings, settingMACs, &record.Setting{Value: c.opts.MACRange.String()}, store.IfAbsent))
	if errors.Is(err, store.ErrConflict) { // another replica was first
		return nil
	}
	return err
}

// PopulateMACs fills the list of managed addresses with the configured range.
func (c *Controller) PopulateMACs(ctx context.Context) error {
	return c.setMACs(ctx, c.opts.MACRange)
}

// PurgeMACs empties the list. Instances keep their addresses.
func (c *Controller) PurgeMACs(ctx context.Context) error { return c.setMACs(ctx, farm.MACRange{}) }

func (c *Controller) setMACs(ctx context.Context, to farm.MACRange) error {
	if c.macs == nil {
		return errNoMACs
	}
	return c.store.Commit(ctx, store.Put(c.tables.Settings, settingMACs, &record.Setting{Value: to.String()}, store.Any))
}

// list returns the addresses that may be assigned.
func (m *macAllocator) list() farm.MACRange {
	s, _, ok := m.c.tables.Settings.Get(settingMACs)
	if !ok || s.Value == "" {
		return farm.MACRange{}
	}
	r, err := farm.ParseMACRange(s.Value)
	if err != nil {
		return farm.MACRange{}
	}
	return r
}

// load reads the existing records.
func (m *macAllocator) load() {
	if m == nil {
		return
	}
	for _, inst := range m.c.tables.Instances.All() {
		m.note(nil, inst)
	}
}

// observe follows the records.
func (m *macAllocator) observe(events []store.Event) {
	if m == nil {
		return
	}
	for _, e := range events {
		switch {
		case e.Kind == record.KindInstance:
			was, _ := e.Old.(*farm.Instance)
			now, _ := e.New.(*farm.Instance)
			m.note(was, now)
		case e.Kind == record.KindMAC && e.New == nil, e.Kind == record.KindSetting && e.ID == settingMACs:
			m.ring()
		}
	}
}

// note processes a change of an instance.
func (m *macAllocator) note(was, now *farm.Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a, ok := reportedMAC(was); ok {
		if m.worn[a]--; m.worn[a] <= 0 {
			delete(m.worn, a)
		}
	}
	if a, ok := reportedMAC(now); ok {
		m.worn[a]++
	}
	if now != nil && m.lacks(now) {
		m.lacking[now.ID] = struct{}{}
		m.ring()
	} else if was != nil {
		delete(m.lacking, was.ID)
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

func (m *macAllocator) ring() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// heard wakes the allocator after a node has reported its inventory, or details of it.
func (m *macAllocator) heard() {
	if m == nil {
		return
	}
	m.mu.Lock()
	waits := len(m.lacking) > 0
	m.mu.Unlock()
	if waits {
		m.ring()
	}
}

// lacks reports whether an instance has to wait for an address first. A suspended version keeps the
// one that it was saved with.
func (m *macAllocator) lacks(i *farm.Instance) bool {
	return m != nil && i.MAC == "" && i.Waiting() && !i.Template.Suspended
}

// check refuses a requested address that cannot be assigned.
func (m *macAllocator) check(o farm.StartOptions) error {
	switch {
	case o.MACAddress == "":
		return nil
	case m == nil:
		return farm.Refused("mac_address cannot be set: managed MAC addresses (SVC_MANAGE_MAC_ADDRESSES) are not enabled; leave it out")
	}
	a, err := farm.ParseMAC(o.MACAddress)
	if err != nil {
		return farm.Invalid("mac_address", "%s", err)
	}
	if list := m.list(); !list.Has(a) {
		return farm.Refused("mac_address %s cannot be given: it is not in the list of managed addresses (%s)", a, firstOf(list.String(), "which is empty"))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if user := m.userLocked(a, m.strange()); user != "" {
		return farm.Refused("mac_address %s cannot be given: %s has it", a, user)
	}
	return nil
}

// give assigns new instances their addresses, as far as any are free now. No other call in this
// process gets them until release is called, when the instances are written or not.
func (m *macAllocator) give(instances []*farm.Instance) (release func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var taken []farm.MAC
	if m.undecided() == "" {
		strange := m.strange()
		for _, inst := range instances {
			if !m.lacks(inst) {
				continue
			}
			a, ok := m.pickLocked(inst.Options.MACAddress, strange)
			if !ok {
				break
			}
			inst.MAC = a.String()
			taken = append(taken, a)
		}
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, a := range taken {
			delete(m.picked, a)
		}
	}
}

// pickLocked finds a free address: the requested one, else the next one.
func (m *macAllocator) pickLocked(want string, strange map[farm.MAC]struct{}) (farm.MAC, bool) {
	list := m.list()
	if want != "" {
		a, err := farm.ParseMAC(want)
		if err != nil || !list.Has(a) || m.userLocked(a, strange) != "" {
			return 0, false
		}
		m.picked[a] = struct{}{}
		return a, true
	}
	size := farm.MAC(list.Len())
	for range size { // it ends after at most one step more than addresses are in use
		a := list.From + m.next%size
		m.next = m.next%size + 1
		if m.userLocked(a, strange) == "" {
			m.picked[a] = struct{}{}
			return a, true
		}
	}
	return 0, false
}

// userLocked returns the user of an address; "" when it is free.
func (m *macAllocator) userLocked(a farm.MAC, strange map[farm.MAC]struct{}) string {
	if r, _, ok := m.c.tables.MACs.Get(a.String()); ok {
		return "instance " + r.Instance
	}
	if _, ok := m.picked[a]; ok {
		return "an instance that is being started"
	}
	if _, ok := strange[a]; ok {
		return "an orphaned VM"
	}
	if m.worn[a] > 0 {
		return "the VM of an instance"
	}
	return ""
}

// strange returns the addresses of the orphaned VMs, on nodes of all replicas.
func (m *macAllocator) strange() map[farm.MAC]struct{} {
	list := map[farm.MAC]struct{}{}
	m.eachStranger(func(u orphan) {
		if a, ok := u.mac(); ok {
			list[a] = struct{}{}
		}
	})
	others, _ := m.c.ages.strangers()
	for _, s := range others {
		for _, a := range s.MACs {
			list[a] = struct{}{}
		}
	}
	return list
}

// eachStranger calls do for each orphaned VM that nodes have reported to this replica.
func (m *macAllocator) eachStranger(do func(orphan)) {
	if m.c.link.strangers.none() {
		return
	}
	for _, s := range m.c.link.all() {
		s.mu.Lock()
		for _, u := range s.unknown {
			do(u)
		}
		s.mu.Unlock()
	}
}

// strangerTime is how long a node has to send the details of an orphaned VM.
const strangerTime = time.Minute

// undecided returns why no address is assigned for the moment: after a restore, or a restart, there
// may be VMs with addresses that have no record. "" when none may exist.
func (m *macAllocator) undecided() string {
	now := m.c.now()
	if now.Before(m.c.settled()) {
		for id, n := range m.c.tables.Nodes.All() {
			if n.State != farm.NodeOffline && m.c.besideOn(id).untold {
				return fmt.Sprintf("waits until node %s has said which MAC addresses its VMs have", n.Name)
			}
		}
	}
	_, vague := m.c.ages.strangers()
	m.eachStranger(func(u orphan) { vague = vague || u.unidentified(now) })
	if vague {
		return "waits for the MAC addresses of orphaned VMs"
	}
	return ""
}

// why returns a function that returns why an instance waits for an address. What is the same for
// all instances is computed one time.
func (m *macAllocator) why() func(*farm.Instance) string {
	if m == nil {
		return nil
	}
	undecided, strange, list := sync.OnceValue(m.undecided), sync.OnceValue(m.strange), sync.OnceValue(m.list)
	return func(i *farm.Instance) string {
		if why := undecided(); why != "" {
			return why
		}
		return m.shortage(i, list(), strange)
	}
}

// shortage returns why a list has no address for an instance.
func (m *macAllocator) shortage(i *farm.Instance, list farm.MACRange, strange func() map[farm.MAC]struct{}) string {
	if list.Len() == 0 {
		return "waits for a MAC address: the list of managed addresses is empty (PUT /api/v1/macaddr fills it)"
	}
	if a, err := farm.ParseMAC(i.Options.MACAddress); err == nil {
		others := strange()
		m.mu.Lock()
		defer m.mu.Unlock()
		if !list.Has(a) {
			return fmt.Sprintf("waits for the MAC address %s, which is not in the list of managed addresses", a)
		}
		return fmt.Sprintf("waits for the MAC address %s, which %s has", a, firstOf(m.userLocked(a, others), "nobody"))
	}
	return fmt.Sprintf("waits for a MAC address: none of the %d of %s is free", list.Len(), list)
}

// macRetry is how often instances without an address are tried again without a report: the reason
// may end with time.
const macRetry = 5 * time.Second

// run assigns addresses to the instances that wait for one, as long as the leader term lasts.
func (m *macAllocator) run(ctx context.Context, r *record.Term) {
	if m == nil {
		return
	}
	tick := time.NewTicker(macRetry)
	defer tick.Stop()
	for {
		if err := m.serve(ctx, r); err != nil && ctx.Err() == nil {
			m.c.log.WarnContext(ctx, "could not give MAC addresses; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-tick.C:
		}
	}
}

// serve assigns the available addresses, to the oldest instances first.
func (m *macAllocator) serve(ctx context.Context, r *record.Term) error {
	m.mu.Lock()
	ids := slices.Sorted(maps.Keys(m.lacking))
	m.mu.Unlock()
	var failed error
	for _, id := range ids {
		inst, rev, ok := m.c.tables.Instances.Get(id)
		if !ok || !m.lacks(inst) {
			continue
		}
		n := inst.Clone()
		release := m.give([]*farm.Instance{n})
		if n.MAC != "" {
			err := r.Commit(ctx, append(m.c.takeMAC(n), store.Put(m.c.tables.Instances, id, n, store.IfRev(rev)))...)
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

// adopted returns the managed address that the VM of an instance without one has.
func (m *macAllocator) adopted(i *farm.Instance) (address string, ok bool) {
	a, ok := reportedMAC(i)
	if m == nil || !ok || i.MAC != "" || !m.list().Has(a) {
		return "", false
	}
	_, _, taken := m.c.tables.MACs.Get(a.String())
	return a.String(), !taken
}

// takeMAC returns the change that assigns an address to an instance; none when it has none.
func (c *Controller) takeMAC(i *farm.Instance) []store.Change {
	if i.MAC == "" {
		return nil
	}
	return []store.Change{store.Put(c.tables.MACs, i.MAC, &farm.MACAddress{Address: i.MAC, Instance: i.ID}, store.IfAbsent)}
}

// freeMAC returns the change that frees the address of an instance whose record is removed.
func (c *Controller) freeMAC(i *farm.Instance) []store.Change {
	if i.MAC == "" {
		return nil
	}
	if r, _, ok := c.tables.MACs.Get(i.MAC); ok && r.Instance != i.ID {
		return nil
	}
	return []store.Change{store.Delete(c.tables.MACs, i.MAC, store.Any)}
}

package record

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Tables are the record tables of a controller, to be opened with its store.
type Tables struct {
	Instances       *store.Table[farm.Instance]
	Nodes           *store.Table[farm.Node]
	Infos           *store.Table[farm.NodeInfo]
	Groups          *store.Table[farm.Group]
	Settings        *store.Table[Setting]
	Removed         *store.Table[RemovedNode]
	Scripts         *store.Table[Script] // of starts
	Saves           *store.Table[farm.SaveRequest]
	SaveChunks      *store.Table[SaveChunk]
	History         *store.Table[farm.InstanceHistory]
	Digests         *store.Table[Digest]
	Released        *store.Table[ReleasedOrphan]
	Events          *store.Table[EventBatch]
	MACs            *store.Table[farm.MACAddress] // those in use, by address
	Idempotency     *store.Table[IdempotencyRecord]
	CacheJobs       *store.Table[farm.CacheJob]
	CacheJobResults *store.Table[farm.CacheJobResult] // of cache jobs on nodes, by CacheJobResultID
	Scans           *store.Table[NodeScan]            // by node
	Series          *store.Table[SeriesRecord]        // utilization of the cloud
	KnownTemplates  *store.Table[KnownTemplate]       // last known states of templates, by id
	JoinTokens      *store.Table[JoinToken]
	AgentRollouts   *store.Table[farm.AgentRollout] // the last one, under LastRollout
	Findings        *store.Table[VersionFindings]   // in versions of templates
	Pools           *store.Table[farm.Pool]
	PoolStats       *store.Table[farm.PoolStats] // by pool
}

// NewTables creates the empty tables. render returns what is kept encoded with each instance; nil
// for nothing.
func NewTables(render func(*farm.Instance) []byte) *Tables {
	return &Tables{
		Instances: store.NewTable(KindInstance, store.WithCachedEncoding(render),
			store.WithIndex(ByNode, func(i *farm.Instance) []string { return keyOf(i.NodeID) }),
			store.WithIndex(ByExternalID, func(i *farm.Instance) []string { return keyOf(i.ExternalID) }),
			store.WithIndex(ByScript, func(i *farm.Instance) []string { return keyOf(i.Options.ScriptID) }),
			store.WithIndex(ByFailure, failureKeys),
			store.WithIndex(ByWaiting, func(i *farm.Instance) []string {
				if i.AwaitsPlacement() && !i.IsStandby() {
					return []string{AllCallers}
				}
				return nil
			}),
			store.WithIndex(ByPool, func(i *farm.Instance) []string { return keyOf(i.Pool) }),
			store.WithIndex(ByStandby, func(i *farm.Instance) []string {
				if i.IsStandby() {
					return []string{AllCallers}
				}
				return nil
			}),
			store.WithIndex(ByAge, func(i *farm.Instance) []string {
				if i.IsStandby() { // lists of instances do not have it
					return nil
				}
				return []string{ageKey(i.Created)}
			}),
			store.WithSums(CountByState, func(i *farm.Instance) (string, store.Amounts) {
				if i.IsStandby() {
					return "", store.Amounts{}
				}
				return string(i.State), store.Amounts{1}
			}),
			store.WithSums(WaitingByCaller,
				func(i *farm.Instance) (string, store.Amounts) { return i.Caller, waitingAmounts(i) }),
			store.WithSums(WaitingOfAll, func(i *farm.Instance) (string, store.Amounts) {
				return AllCallers,
					waitingAmounts(i)
			}),
			store.WithSums(UsageByNode, nodeUsage),
			store.WithSums(SlotsByNode, nodeSlots)),
		Nodes:    store.NewTable[farm.Node](KindNode),
		Infos:    store.NewTable(KindNodeInfo, store.WithIndex(ByPeerContent, peerContents)),
		Groups:   store.NewTable[farm.Group](KindGroup),
		Settings: store.NewTable[Setting](KindSetting),
		Removed:  store.NewTable[RemovedNode](KindRemovedNode),
		Scripts:  newScriptTable(),
		Saves: store.NewTable(KindSave,
			store.WithIndex(ByStatus, func(s *farm.SaveRequest) []string { return []string{string(s.Status)} }),
			store.WithSums(SavesByCaller, func(s *farm.SaveRequest) (string, store.Amounts) {
				return s.Caller,
					SaveAmounts(s)
			}),
			store.WithSums(SavesOfAll, func(s *farm.SaveRequest) (string, store.Amounts) {
				return AllCallers,
					SaveAmounts(s)
			})),
		SaveChunks:      store.NewTable[SaveChunk](KindSaveChunk),
		History:         newHistoryTable(),
		Digests:         store.NewTable[Digest](KindDigest),
		Released:        store.NewTable[ReleasedOrphan](KindReleasedOrphan),
		Events:          newEventTable(),
		MACs:            store.NewTable[farm.MACAddress](KindMAC),
		Idempotency:     newIdempotencyTable(),
		CacheJobs:       store.NewTable[farm.CacheJob](KindCacheJob),
		CacheJobResults: store.NewTable[farm.CacheJobResult](KindCacheJobResult),
		Scans:           store.NewTable[NodeScan](KindNodeScan),
		Series:          store.NewTable[SeriesRecord](KindSeries),
		KnownTemplates:  store.NewTable[KnownTemplate](KindKnownTemplate),
		JoinTokens:      store.NewTable[JoinToken](KindJoinToken),
		AgentRollouts:   store.NewTable[farm.AgentRollout](KindAgentRollout),
		Findings:        store.NewTable[VersionFindings](KindFindings),
		Pools:           store.NewTable[farm.Pool](KindPool),
		PoolStats:       store.NewTable[farm.PoolStats](KindPoolStats),
	}
}

// peerContents returns the content IDs of what other nodes may read from a node.
func peerContents(info *farm.NodeInfo) (ids []string) {
	if info.PeerAddress == "" {
		return nil
	}
	for _, t := range info.Templates {
		if !slices.Contains(ids, t.ContentID) {
			ids = append(ids, t.ContentID)
		}
	}
	return ids
}

// keyOf returns the values that an index files a record under; none for an empty one.
func keyOf(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// All returns every table, for opening the store.
func (t *Tables) All() []store.AnyTable {
	return []store.AnyTable{
		t.Instances, t.Nodes, t.Infos, t.Groups, t.Settings, t.Removed, t.Scripts, t.Saves, t.SaveChunks, t.History,
		t.Digests, t.Released,
		t.Events, t.MACs, t.Idempotency, t.CacheJobs, t.CacheJobResults, t.Scans, t.Series, t.KnownTemplates,
		t.JoinTokens, t.AgentRollouts, t.Findings, t.Pools, t.PoolStats,
	}
}

// ageKey returns a key that sorts records by their age: texts of the same length, the newest first
// and those without a time last.
func ageKey(created time.Time) string {
	if created.IsZero() {
		return ageless
	}
	return fmt.Sprintf("%019d", math.MaxInt64-max(created.UnixNano(), 0))
}

const ageless = "9999999999999999999"

// nodeUsage returns what the VM of an instance uses of a node while it runs: one VM, its processors,
// its memory in MiB.
func nodeUsage(inst *farm.Instance) (node string, a store.Amounts) {
	if inst.VM == nil || inst.VM.Status != farm.VMRunning || !inst.UsesCapacity() {
		return "", a
	}
	return inst.NodeID,
		store.Amounts{1, cmp.Or(inst.VM.CPUs, inst.GuestCPUs()), cmp.Or(inst.VM.MemoryMB, inst.GuestMemoryMB())}
}

// nodeSlots returns what the slot of an instance is used for: 1 running, 1 failed, or 1 other.
func nodeSlots(inst *farm.Instance) (node string, a store.Amounts) {
	switch inst.SlotUse() {
	case farm.SlotRunning:
		a = store.Amounts{1, 0, 0}
	case farm.SlotFailed:
		a = store.Amounts{0, 1, 0}
	case farm.SlotOther:
		a = store.Amounts{0, 0, 1}
	case farm.SlotUnused:
		return "", a
	}
	return inst.NodeID, a
}

// waitingAmounts returns the amounts of a pending instance.
func waitingAmounts(i *farm.Instance) (a store.Amounts) {
	if i.AwaitsPlacement() {
		a[0], a[1] = 1, InstanceSize(i)
	}
	return a
}

// SaveAmounts returns the amounts of a save request that is not done.
func SaveAmounts(s *farm.SaveRequest) (a store.Amounts) {
	if s.Status != farm.SaveSucceeded {
		a[0], a[1] = 1, EncodedSize(s)
	}
	return a
}

func newScriptTable() *store.Table[Script] {
	return store.NewTable(KindScript, store.WithPartialRecords(func(s *Script) *Script {
		return &Script{Caller: s.Caller, Size: s.Size}
	}),
		store.WithSums(ScriptsByCaller,
			func(s *Script) (string, store.Amounts) { return s.Caller, store.Amounts{s.Size} }),
		store.WithSums(ScriptsOfAll, func(s *Script) (string, store.Amounts) {
			return AllCallers,
				store.Amounts{s.Size}
		}))
}

func newHistoryTable() *store.Table[farm.InstanceHistory] {
	return store.NewTable(KindHistory,
		store.WithIndex(ByInstance, func(p *farm.InstanceHistory) []string { return []string{p.ID} }),
		store.WithIndex(ByExternalID, func(p *farm.InstanceHistory) []string { return keyOf(p.ExternalID) }))
}

func newEventTable() *store.Table[EventBatch] {
	return store.NewTable(KindEvent, store.WithCodec(
		func(h *EventBatch) ([]byte, error) { return bytes.Join(h.Lines, []byte("\n")), nil },
		func(data []byte) (*EventBatch, error) {
			return &EventBatch{Lines: bytes.Split(bytes.Clone(data), []byte("\n"))}, nil
		}))
}

// newIdempotencyTable creates the table of idempotency records.
func newIdempotencyTable() *store.Table[IdempotencyRecord] {
	return store.NewTable(KindIdempotency,
		store.WithSums(IdempotencyByCaller, func(k *IdempotencyRecord) (string, store.Amounts) {
			return k.Caller, store.Amounts{1, len(k.Answer)}
		}))
}

// NodeInfo returns the description that a node sent; an empty one before the first.
func (t *Tables) NodeInfo(node string) *farm.NodeInfo {
	if info, _, ok := t.Infos.Get(node); ok {
		return info
	}
	return &farm.NodeInfo{}
}

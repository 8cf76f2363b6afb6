package record

import "github.com/buildyard/buildyard/internal/store"

// The kinds of the tables; they are segments of the store's keys.
const (
	KindInstance       = store.Kind("i")
	KindNode           = store.Kind("n")
	KindNodeInfo       = store.Kind("d")
	KindGroup          = store.Kind("g")
	KindSetting        = store.Kind("s")
	KindRemovedNode    = store.Kind("r")
	KindSave           = store.Kind("v")
	KindSaveChunk      = store.Kind("o")
	KindHistory        = store.Kind("h")
	KindDigest         = store.Kind("a")
	KindReleasedOrphan = store.Kind("u")
	KindMAC            = store.Kind("m")
	KindCacheJob       = store.Kind("t")
	KindCacheJobResult = store.Kind("f")
	KindEvent          = store.Kind("e")
	KindIdempotency    = store.Kind("k")
	KindScript         = store.Kind("b")
	KindNodeScan       = store.Kind("c")
	KindSeries         = store.Kind("q")
	KindKnownTemplate  = store.Kind("l")
	KindJoinToken      = store.Kind("j")
	KindAgentRollout   = store.Kind("w")
	KindFindings       = store.Kind("vf") // all letters are taken
	KindPool           = store.Kind("pool")
	KindPoolStats      = store.Kind("poolstats")
)

// Indexes of the tables.
const (
	ByNode       = "node"     // of instances: where they are placed
	ByExternalID = "external" // of instances, present and past
	ByAge        = "age"      // of instances: the youngest first
	UsageByNode  = "taken"    // sums of instances: what those on a node use
	SlotsByNode  = "slots"    // sums of instances: slots of a node by use, running, failed and other
	CountByState = "state"    // sums of instances: how many are in a state
	ByScript     = "script"   // of instances
	ByFailure    = "failure"  // of instances in Error: FailureOfTemplate and FailureOfNode
	ByWaiting    = "waiting"  // of instances: those that wait for a node, except standbys, under AllCallers
	ByStandby    = "standby"  // of instances: standbys, under AllCallers
	ByPool       = "pool"     // of instances: standbys, by their pool
	ByInstance   = "instance" // of past ones
	ByStatus     = "status"   // of save requests

	ByPeerContent = "peer content" // of descriptions of nodes that serve versions to others: what they have
)

// Sums of instances and scripts. Those of all are under the key AllCallers.
const (
	WaitingByCaller     = "waiting" // instances that wait, and their bytes, by caller
	WaitingOfAll        = "all waiting"
	ScriptsByCaller     = "scripts" // bytes, by caller
	ScriptsOfAll        = "all scripts"
	SavesByCaller       = "saves" // requests that are not done, and their bytes, by caller
	SavesOfAll          = "all saves"
	IdempotencyByCaller = "kept" // idempotency records, and the bytes of their responses, by caller
	AllCallers          = "all"
)

package storeadmin

import (
	"context"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/etcd"
)

// Level is the result of one check.
type Level string

// The levels, the best first.
const (
	LevelOK   Level = "OK"
	LevelWarn Level = "WARN"
	LevelFail Level = "FAIL"
)

// Finding is the result of one check of a store.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// Inspected is what Check needs of a backend besides its records.
type Inspected interface {
	Members(ctx context.Context) []etcd.MemberReport
	MayMaintain(ctx context.Context) (bool, error)
}

var _ Inspected = (*etcd.Backend)(nil)

const (
	latencyProbes = 10
	slowWrite     = 50 * time.Millisecond // above it creates and starts are noticeably slower
	fullPercent   = 80                    // of the quota
)

// Check reports the state of a store, one finding for each check. It writes and deletes a key next to
// the records.
func Check(ctx context.Context, s Side, inspected Inspected) []Finding {
	findings := checkMembers(inspected.Members(ctx))
	findings = append(findings, s.checkRecords(ctx)...)
	findings = append(findings, s.checkLatency(ctx), checkRights(ctx, inspected))
	return findings
}

func checkMembers(members []etcd.MemberReport) (findings []Finding) {
	for _, m := range members {
		name := "member " + m.Address
		if m.Address == "" {
			name = "embedded member"
		}
		if m.Err != nil {
			findings = append(findings, Finding{
				name, LevelFail, m.Err.Error(),
				"check that the member runs and that this machine reaches it",
			})
			continue
		}
		findings = append(findings, checkMember(name, m))
	}
	if n := len(members); n > 0 && n%2 == 0 {
		findings = append(findings, Finding{
			"members", LevelWarn, fmt.Sprintf("%d endpoints are configured", n),
			"a cluster has three or five members; name each of them",
		})
	}
	return findings
}

// checkMember evaluates a member that answered.
func checkMember(name string, m etcd.MemberReport) Finding {
	role := "follower"
	if m.IsLeader {
		role = "leader"
	}
	detail := fmt.Sprintf("version %s, %s, %s of %s, answered in %s", m.Version, role, bytesize.Format(m.FileBytes),
		bytesize.Format(m.QuotaBytes), m.Took.Round(100*time.Microsecond))
	switch {
	case m.IsFull:
		return Finding{
			name, LevelFail, detail + ", its database is full",
			"run etcdctl compact, defrag and alarm disarm as etcd's root",
		}
	case m.QuotaBytes > 0 && m.FileBytes*100/m.QuotaBytes >= fullPercent:
		return Finding{name, LevelWarn, detail, "raise --quota-backend-bytes, or run etcdctl defrag"}
	}
	return Finding{name, LevelOK, detail, ""}
}

// checkRecords checks whether a controller opens the records.
func (s Side) checkRecords(ctx context.Context) []Finding {
	schema, err := s.schema(ctx)
	if err != nil {
		return []Finding{{"records", LevelFail, err.Error(), "check the members and the rights of the user"}}
	}
	if !schema.Exists() {
		return []Finding{{"records", LevelOK, "none: the first controller creates them", ""}}
	}
	if err := schema.Err(); err != nil {
		return []Finding{{"records", LevelFail, err.Error(), "follow the sentence before"}}
	}
	n, err := s.countRecords(ctx)
	if err != nil {
		return []Finding{{"records", LevelFail, err.Error(), "check the members and the rights of the user"}}
	}
	return []Finding{{"records", LevelOK, fmt.Sprintf("%d, schema version %d", n, schema.Version()), ""}}
}

// checkLatency writes a key several times.
func (s Side) checkLatency(ctx context.Context) Finding {
	key := s.dir() + "store-check"
	var slowest time.Duration
	for i := range latencyProbes {
		began := time.Now()
		txn := store.Txn{Puts: []store.KV{{Key: key, Value: []byte("1")}}}
		if i == latencyProbes-1 {
			txn = store.Txn{Deletes: []string{key}}
		}
		if _, err := s.Backend.Commit(ctx, txn); err != nil {
			return Finding{"writes", LevelFail, err.Error(), "check that a majority of the members runs"}
		}
		slowest = max(slowest, time.Since(began))
	}
	detail := fmt.Sprintf("%d writes, the slowest took %s", latencyProbes, slowest.Round(100*time.Microsecond))
	if slowest > slowWrite {
		return Finding{"writes", LevelWarn, detail, "give etcd a faster disk and a faster network between its members"}
	}
	return Finding{"writes", LevelOK, detail, ""}
}

// checkRights checks whether controllers can do the maintenance of the cluster.
func checkRights(ctx context.Context, inspected Inspected) Finding {
	may, err := inspected.MayMaintain(ctx)
	switch {
	case err != nil:
		return Finding{"maintenance", LevelFail, err.Error(), "check the members"}
	case may:
		return Finding{"maintenance", LevelOK, "controllers compact old revisions", ""}
	}
	return Finding{
		"maintenance", LevelOK, "the user may read and write its prefix only: etcd has to compact",
		"start the members with --auto-compaction-mode=periodic --auto-compaction-retention=5m",
	}
}

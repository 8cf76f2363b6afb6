package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// MemberReport is what one member reports of itself.
type MemberReport struct {
	Address                          string // empty: the embedded member
	Version                          string
	FileBytes, UsedBytes, QuotaBytes int64
	IsLeader, IsFull                 bool
	Took                             time.Duration // time of the answer
	Err                              error         // why the member did not report; nil: it did
}

// Members asks every member, one after another.
func (b *Backend) Members(ctx context.Context) []MemberReport {
	var reports []MemberReport
	for _, address := range b.memberAddrs {
		began := time.Now()
		s, err := b.memberStatus(ctx, address)
		reports = append(reports, MemberReport{
			Address: address, Version: s.version, FileBytes: s.fileBytes, UsedBytes: s.usedBytes,
			QuotaBytes: s.quotaBytes, IsLeader: s.isLeader, IsFull: s.noSpace, Took: time.Since(began), Err: err,
		})
	}
	return reports
}

// MayMaintain reports whether the user may compact, defragment and disarm alarms. It asks for a
// compaction to revision 0, which etcd refuses to everybody else for that reason only.
func (b *Backend) MayMaintain(ctx context.Context) (bool, error) {
	ctx, cancel := b.callContext(ctx, callTimeout)
	defer cancel()
	_, err := b.client.Compact(ctx, 0)
	switch {
	case err == nil, errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		return true, nil
	case isDenied(err):
		return false, nil
	}
	return false, readError(err)
}

package etcd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/buildyard/buildyard/internal/store"
)

var _ store.Snapshotter = (*Backend)(nil)

// Snapshot implements store.Snapshotter. Of the embedded member it is etcd's own snapshot. A cluster may
// have keys of other programs, and permits its snapshot to root only: there it is a database of the
// same form with the present records below the prefix.
func (b *Backend) Snapshot(ctx context.Context) (io.ReadCloser, int64, error) {
	if b.isExternal {
		return b.snapshotPrefix(ctx)
	}
	sizes, err := b.memberStatus(ctx, b.memberAddrs[0])
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := b.client.Snapshot(ctx)
	if err != nil {
		cancel()
		return nil, 0, fmt.Errorf("%w: snapshot: %w", store.ErrUnavailable, err)
	}
	return &snapshotStream{stream, cancel}, sizes.fileBytes, nil
}

// snapshotStream ends the call when it is closed: an open one keeps etcd from reusing freed space.
type snapshotStream struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (s *snapshotStream) Close() error {
	s.cancel()
	return s.ReadCloser.Close()
}

// memberStatus are the sizes that a member reports of its database.
type memberStatus struct {
	fileBytes, usedBytes, quotaBytes int64 // bytes
	noSpace                          bool  // it accepts no writes until its alarm is disarmed
	isLeader                         bool
	version                          string
}

func (b *Backend) memberStatus(ctx context.Context, member string) (memberStatus, error) {
	ctx, cancel := b.callContext(ctx, callTimeout)
	defer cancel()
	resp, err := b.client.Status(ctx, member)
	if err != nil {
		return memberStatus{}, fmt.Errorf("%w: get the size of the database: %w", store.ErrUnavailable, err)
	}
	if resp.DbSizeQuota <= 0 { // members before 3.6 do not report it
		resp.DbSizeQuota = fallbackQuotaBytes
	}
	s := memberStatus{
		fileBytes: resp.DbSize, usedBytes: resp.DbSizeInUse, quotaBytes: resp.DbSizeQuota,
		isLeader: resp.Leader == resp.Header.GetMemberId(), version: resp.Version,
	}
	for _, trouble := range resp.Errors { // listing the alarms would cost an entry in the log
		s.noSpace = s.noSpace || strings.Contains(trouble, noSpaceAlarm.String())
	}
	return s, nil
}

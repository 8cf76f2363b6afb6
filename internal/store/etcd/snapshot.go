package etcd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/buildyard/buildyard/internal/store"
)

var _ store.Snapshotter = (*Backend)(nil)

// Snapshot implements store.Snapshotter: etcd's own snapshot, one member's.
func (b *Backend) Snapshot(ctx context.Context) (io.ReadCloser, int64, error) {
	sizes, err := b.status(ctx, b.members[0])
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := b.kv.Snapshot(ctx)
	if err != nil {
		cancel()
		return nil, 0, fmt.Errorf("%w: snapshot: %w", store.ErrUnavailable, err)
	}
	return &openSnapshot{stream, cancel}, sizes.file, nil
}

// openSnapshot ends the call when it is closed: an open one keeps etcd from reusing freed space.
type openSnapshot struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (s *openSnapshot) Close() error {
	s.cancel()
	return s.ReadCloser.Close()
}

// sizes are the sizes that a member reports of its database.
type sizes struct {
	file, used, quota int64 // bytes
	full              bool  // it accepts no writes until its alarm is disarmed
	leader            bool
}

func (b *Backend) status(ctx context.Context, member string) (sizes, error) {
	ctx, cancel := b.within(ctx, callTimeout)
	defer cancel()
	resp, err := b.kv.Status(ctx, member)
	if err != nil {
		return sizes{}, fmt.Errorf("%w: get the size of the database: %w", store.ErrUnavailable, err)
	}
	if resp.DbSizeQuota <= 0 { // members before 3.6 do not report it
		resp.DbSizeQuota = defaultQuota
	}
	s := sizes{
		file: resp.DbSize, used: resp.DbSizeInUse, quota: resp.DbSizeQuota,
		leader: resp.Leader == resp.Header.GetMemberId(),
	}
	for _, trouble := range resp.Errors { // listing the alarms would cost an entry in the log
		s.full = s.full || strings.Contains(trouble, alarmFull.String())
	}
	return s, nil
}

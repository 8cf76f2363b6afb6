package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/buildyard/buildyard/internal/store"
)

var _ store.HistoryTrimmer = (*Backend)(nil)

// SetExpendable implements store.HistoryTrimmer.
func (b *Backend) SetExpendable(oldest func(n int) []string) {
	b.maintainer.mu.Lock()
	defer b.maintainer.mu.Unlock()
	b.maintainer.oldestExpendable = oldest
}

// recoverFull makes a full database writable again: it drops old revisions and, when that cannot be
// enough, the oldest expendable records, rewrites the file and disarms etcd's alarm. Until then
// every write is refused, and nothing is lost.
func (c *maintainer) recoverFull(ctx context.Context) error {
	if time.Since(c.lastRecovery) < c.recoveryPause {
		return nil
	}
	c.lastRecovery = time.Now()
	c.log.Error("store database full, writes refused; freeing space", "alarm", alarmName)
	c.setFlag(&c.refusing, true) // until a check finds otherwise
	if err := c.compact(ctx); errors.Is(err, errDeniedCall) {
		return nil // without a compaction nothing that is deleted makes room; the log says what the operator has to do
	} else if err != nil {
		return err
	}
	if err := c.deleteExpendable(ctx); err != nil {
		return err
	}
	members, err := c.listMembers(ctx) // with the leader last the cluster changes it at most once
	if err != nil {
		return err
	}
	for _, member := range members {
		if err := c.defrag(ctx, member.address); err != nil {
			return err
		}
	}
	return c.disarmAlarm(ctx)
}

// deleteExpendable drops expendable records, the oldest first, as long as too much is in use after a compaction.
func (c *maintainer) deleteExpendable(ctx context.Context) error {
	c.mu.Lock()
	oldest := c.oldestExpendable
	c.mu.Unlock()
	for oldest != nil {
		members, err := c.listMembers(ctx)
		if err != nil {
			return err
		}
		s := members[0]
		if percentOf(s.usedBytes, s.quotaBytes) < deleteRecordsPercent {
			return nil
		}
		dropped, err := c.deleteKeys(ctx, oldest(deletesPerCheck))
		if err != nil || dropped == 0 {
			return err
		}
		c.log.Error("old history records deleted to free space", "alarm", alarmName, "records", dropped)
		if err := c.compact(ctx); err != nil {
			return err
		}
		if err := c.awaitFreedPages(ctx, s.address, s.usedBytes); err != nil {
			return err
		}
	}
	return nil
}

// deletesPerCheck is how many records are deleted before the size is checked again.
const deletesPerCheck = 2_000

// deleteKeys deletes keys. A full etcd still accepts a transaction that only deletes.
func (c *maintainer) deleteKeys(ctx context.Context, keys []string) (dropped int, err error) {
	for part := range slices.Chunk(keys, deleteBatchKeys) {
		var ops []clientv3.Op
		for _, key := range part {
			ops = append(ops, clientv3.OpDelete(key))
		}
		tctx, cancel := context.WithTimeout(ctx, callTimeout)
		resp, err := c.backend.client.Txn(tctx).Then(ops...).Commit()
		cancel()
		if err != nil {
			return dropped, fmt.Errorf("%w: delete old history records: %w", store.ErrUnavailable, err)
		}
		for _, r := range resp.Responses {
			dropped += int(r.GetResponseDeleteRange().GetDeleted())
		}
	}
	return dropped, nil
}

// awaitFreedPages waits until etcd has counted the pages that a compaction freed, which it does with its next batch.
func (c *maintainer) awaitFreedPages(ctx context.Context, member string, before int64) error {
	for range 10 {
		s, err := c.backend.memberStatus(ctx, member)
		if err != nil || s.usedBytes < before {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

const noSpaceAlarm = etcdserverpb.AlarmType_NOSPACE

// errStillFull ends a recovery that freed too little; it is tried again.
var errStillFull = errors.New("the database is still full: delete records, or raise its quota")

func (c *maintainer) disarmAlarm(ctx context.Context) error {
	members, err := c.listMembers(ctx)
	if err != nil {
		return err
	}
	for _, s := range members {
		if percentOf(s.fileBytes, s.quotaBytes) >= 95 {
			return fmt.Errorf("%w: %w (%d of %d bytes)", store.ErrUnavailable, errStillFull, s.fileBytes, s.quotaBytes)
		}
	}
	dctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	alarms, err := c.backend.client.AlarmList(dctx)
	if err != nil {
		return fmt.Errorf("%w: clear the alarm of the full database: %w", store.ErrUnavailable, err)
	}
	for _, alarm := range alarms.Alarms {
		if alarm.Alarm != noSpaceAlarm {
			continue
		}
		_, err := c.backend.client.AlarmDisarm(dctx, (*clientv3.AlarmMember)(alarm))
		if isDenied(err) {
			c.deniedCalls.log(c.log, callDisarm)
			return nil // writes are still refused
		}
		if err != nil {
			return fmt.Errorf("%w: clear the alarm of the full database: %w", store.ErrUnavailable, err)
		}
	}
	c.setFlag(&c.refusing, false)
	c.lastRecovery = time.Time{}
	c.log.Warn("store database has free space again; writes accepted")
	return nil
}

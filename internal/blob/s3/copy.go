package s3

import (
	"context"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/s3store"
)

// CopyTarget is a bucket into which layers are copied while no registry uses it. One goroutine may use it.
type CopyTarget struct {
	// Sizes has the bytes of the layers in the bucket, without damaged ones.
	Sizes map[blob.Digest]int64

	bucket  *s3store.Bucket
	lease   *s3store.Lease
	damaged map[string]string // key of the bytes of a damaged layer -> key of its marker in the trash
}

// OpenTarget lists the layers of the bucket of a lease.
func OpenTarget(ctx context.Context, bucket *s3store.Bucket, lease *s3store.Lease) (*CopyTarget, error) {
	s := &Store{Options: Options{Bucket: bucket}}
	f, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	trash, err := s.readTrash(ctx)
	if err != nil {
		return nil, err
	}
	t := &CopyTarget{Sizes: map[blob.Digest]int64{}, bucket: bucket, lease: lease, damaged: map[string]string{}}
	for marker, layer := range trash {
		if layer.damaged {
			t.damaged[layer.Key] = marker
		}
	}
	for root, objects := range f.layers {
		for _, l := range objects {
			if t.damaged[l.key] == "" {
				t.Sizes[root] = l.size
			}
		}
	}
	return t, nil
}

// CopiedLayer is a complete layer that is stored elsewhere.
type CopiedLayer struct {
	Digest blob.Digest
	State  bool // it is a layer of a saved state
	Bytes  io.ReaderAt
	Size   int64
}

// Put copies a layer into the bucket under its own name, also in place of a damaged one. An interrupted copy is resumed
// by another call: parts that the server has with the right checksum are not sent again. uploaded is called with the
// bytes of each part.
func (t *CopyTarget) Put(ctx context.Context, l CopiedLayer, uploaded func(bytes int64)) error {
	key := layerKey(l.Digest, l.State)
	if err := putLayer(ctx, t.bucket, key, l, uploaded); err != nil {
		return err
	}
	marker := t.damaged[key]
	if marker == "" {
		return nil
	}
	if err := t.lease.Delete(ctx, marker); err != nil { // until then the new bytes count as damaged
		return err
	}
	delete(t.damaged, key)
	return nil
}

func putLayer(
	ctx context.Context, bucket *s3store.Bucket, key string, l CopiedLayer, uploaded func(bytes int64),
) error {
	if l.Size <= bucket.Options().PartSize {
		_, err := bucket.PutReader(ctx, key, l.Bytes, l.Size)
		if err == nil {
			uploaded(l.Size)
		}
		return err
	}
	object, have, err := resumeObject(ctx, bucket, key)
	if err != nil {
		return err
	}
	partSize := bucket.PartSizeFor(l.Size)
	var mu sync.Mutex
	var parts []s3store.UploadedPart
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(bucket.Options().UploadConcurrency)
	for number, off := 1, int64(0); off < l.Size; number, off = number+1, off+partSize {
		section := io.NewSectionReader(l.Bytes, off, min(partSize, l.Size-off))
		group.Go(func() error {
			p, err := putMissing(groupCtx, bucket, object, uploadedPart(have, number), section)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			parts = append(parts, p)
			uploaded(section.Size())
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, err = bucket.CompleteUpload(ctx, object, parts)
	return err
}

// resumeObject returns the incomplete upload of a key with its parts, or begins one.
func resumeObject(
	ctx context.Context, bucket *s3store.Bucket, key string,
) (s3store.UploadID, map[int]s3store.UploadedPart, error) {
	open, err := bucket.ListUploads(ctx, key)
	if err != nil {
		return s3store.UploadID{}, nil, err
	}
	for _, object := range open {
		if object.Key != key {
			continue
		}
		parts, err := bucket.ListParts(ctx, object)
		if err != nil {
			return object, nil, err
		}
		have := map[int]s3store.UploadedPart{}
		for _, p := range parts {
			have[p.Number] = p
		}
		return object, have, nil
	}
	object, err := bucket.BeginUpload(ctx, key)
	return object, nil, err
}

// uploadedPart returns the part that the server has with a number; one without a size when it has none.
func uploadedPart(have map[int]s3store.UploadedPart, number int) s3store.UploadedPart {
	p := have[number]
	p.Number = number
	return p
}

// putMissing uploads a part unless the server has it with the same bytes.
func putMissing(
	ctx context.Context, bucket *s3store.Bucket, object s3store.UploadID, have s3store.UploadedPart,
	src *io.SectionReader,
) (s3store.UploadedPart, error) {
	if have.Size == src.Size() {
		if same, err := have.MatchesPart(src, 0); same || err != nil {
			return have, err
		}
	}
	return bucket.PutPart(ctx, object, have.Number, src)
}

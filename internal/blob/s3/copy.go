package s3

import (
	"context"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/s3store"
)

// ListLayers returns the sizes of the layers in a bucket.
func ListLayers(ctx context.Context, bucket *s3store.Bucket) (map[blob.Digest]int64, error) {
	s := &Store{Options: Options{Bucket: bucket}}
	f, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	sizes := make(map[blob.Digest]int64, len(f.layers))
	for root, objects := range f.layers {
		sizes[root] = objects[0].size
	}
	return sizes, nil
}

// CopiedLayer is a complete layer that is stored elsewhere.
type CopiedLayer struct {
	Digest blob.Digest
	State  bool // it is a layer of a saved state
	Bytes  io.ReaderAt
	Size   int64
}

// PutLayer copies a layer into a bucket under its own name. An interrupted copy is resumed by another call: parts that
// the server has with the right checksum are not sent again. uploaded is called with the bytes of each part.
func PutLayer(
	ctx context.Context, bucket *s3store.Bucket, l CopiedLayer, uploaded func(bytes int64),
) error {
	key := layerKey(l.Digest, l.State)
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

package container

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// Image is one image of a file. Its layers are read in place, for as long as it is open.
type Image struct {
	Ref      string // its first reference; "" when it has none
	Digest   string // of its manifest, or of its configuration in an archive of Docker; "": unknown
	Platform string // "linux/arm64/v8"; "": unknown
	Others   int    // images of the file that were not chosen

	store  blobStore
	layers []layerSource
}

// SplitTarget splits PATH[:REFERENCE] and PATH[@DIGEST]: the longest beginning that exists is the path.
func SplitTarget(target string) (name, selection string) {
	for end := len(target); end > 0; end = strings.LastIndexAny(target[:end], ":@") {
		if _, err := os.Lstat(target[:end]); err == nil {
			return target[:end], strings.TrimLeft(target[end:], ":@")
		}
	}
	return target, ""
}

// Open opens an image of an archive or a directory: that with a tag, a reference or a digest, for a platform
// ("linux/arm64"; "": that of this machine, unless there is only one).
func Open(target, wanted string) (*Image, error) {
	name, selection := SplitTarget(target)
	store, err := openStore(name)
	if err != nil {
		return nil, err
	}
	i, err := choose(store, selection, wanted)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return i, nil
}

// Close closes the file.
func (i *Image) Close() error { return i.store.Close() }

func choose(store blobStore, selection, wanted string) (*Image, error) {
	all, err := readCandidates(store)
	if err != nil {
		return nil, err
	}
	c, err := selectCandidate(all, selection, wanted)
	if err != nil {
		return nil, err
	}
	if c.err != nil {
		return nil, c.err
	}
	i := &Image{
		Digest: string(c.id), Platform: c.platform.String(), Others: len(all) - 1, store: store, layers: c.layers,
	}
	if len(c.names) > 0 {
		i.Ref = c.names[0]
	}
	return i, nil
}

// selectCandidate returns the only image that is meant.
func selectCandidate(all []candidate, selection, wanted string) (candidate, error) {
	found := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !c.matches(selection) })
	if len(found) == 0 && selection != "" {
		return candidate{}, fmt.Errorf("it has no image %q; it has %s", selection, listCandidates(all))
	}
	if len(found) == 0 {
		return candidate{}, errors.New("it has no images")
	}
	if wanted != "" || len(found) > 1 {
		system := runtime.GOOS
		if system == "darwin" {
			system = "linux" // containers run in a VM there
		}
		p := cmp.Or(wanted, system+"/"+runtime.GOARCH)
		on := slices.DeleteFunc(slices.Clone(found), func(c candidate) bool { return !c.platform.isFor(p) })
		if len(on) == 0 && wanted != "" {
			return candidate{}, fmt.Errorf("it has no image for the platform %q; it has %s", wanted,
				listCandidates(found))
		}
		if len(on) > 0 {
			found = on
		}
	}
	readable := slices.DeleteFunc(slices.Clone(found), func(c candidate) bool { return c.err != nil })
	if len(readable) > 0 {
		found = readable // an index also names platforms that were not copied
	}
	isOther := func(c candidate) bool { return c.id == "" || c.id != found[0].id } // one may have several names
	if slices.ContainsFunc(found[1:], isOther) {
		return candidate{}, fmt.Errorf("it has several images: choose one with a tag (PATH:TAG), a digest "+
			"(PATH@DIGEST) or a platform (--platform) of %s", listCandidates(found))
	}
	return found[0], nil
}

// matches reports whether a tag, a reference or a digest is that of an image.
func (c *candidate) matches(selection string) bool {
	if selection == "" || slices.Contains(c.digests, digest(selection)) {
		return true
	}
	return slices.ContainsFunc(c.names, func(name string) bool {
		return name == selection || strings.HasSuffix(name, "/"+selection) ||
			!strings.ContainsAny(selection, ":/") && strings.HasSuffix(name, ":"+selection)
	})
}

// isFor reports whether a platform is that of a request, which may leave out the variant.
func (p platform) isFor(wanted string) bool {
	text := p.String()
	return text == wanted || strings.HasPrefix(text, wanted+"/") || p.Variant == "" && wanted == text+"/v8"
}

// maxListed limits the images that an error names.
const maxListed = 10

func listCandidates(all []candidate) string {
	var out []string
	for _, c := range all[:min(len(all), maxListed)] {
		name := cmp.Or(string(c.id), "an image without a name")
		if len(c.names) > 0 {
			name = c.names[0]
		}
		if p := c.platform.String(); p != "" {
			name += " (" + p + ")"
		}
		out = append(out, name)
	}
	if len(all) > maxListed {
		out = append(out, fmt.Sprintf("%d more", len(all)-maxListed))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// String names the image for messages.
func (i *Image) String() string {
	text := cmp.Or(i.Ref, i.Digest, "an image without a name")
	if i.Platform != "" {
		text += " (" + i.Platform + ")"
	}
	return text
}

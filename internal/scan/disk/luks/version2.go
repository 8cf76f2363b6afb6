package luks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

const (
	maxSlots     = 32
	maxObjects   = 256 // of another kind
	maxSaltBytes = 1024
	sizeDynamic  = "dynamic" // up to the end of the device
)

// header2 is the JSON of version 2. Numbers that may exceed 53 bits are strings in it.
type header2 struct {
	Keyslots map[string]keySlot2 `json:"keyslots"`
	Segments map[string]segment2 `json:"segments"`
	Digests  map[string]digest2  `json:"digests"`
	Config   struct {
		Requirements struct {
			Mandatory []string `json:"mandatory"`
		} `json:"requirements"`
	} `json:"config"`
}

type keySlot2 struct {
	Type     string `json:"type"`
	KeySize  int64  `json:"key_size"`
	Priority *int   `json:"priority"` // 0: only on demand, 2: first
	AF       struct {
		Type    string `json:"type"`
		Stripes int64  `json:"stripes"`
		Hash    string `json:"hash"`
	} `json:"af"`
	Area struct {
		Type       string `json:"type"`
		Offset     string `json:"offset"`
		Size       string `json:"size"`
		Encryption string `json:"encryption"`
		KeySize    int64  `json:"key_size"`
	} `json:"area"`
	KDF struct {
		Type       string `json:"type"`
		Hash       string `json:"hash"`
		Iterations int64  `json:"iterations"`
		Time       int64  `json:"time"`
		Memory     int64  `json:"memory"` // KiB
		CPUs       int64  `json:"cpus"`
		Salt       []byte `json:"salt"`
	} `json:"kdf"`
}

type segment2 struct {
	Type       string          `json:"type"`
	Offset     string          `json:"offset"`
	Size       string          `json:"size"`
	IVTweak    string          `json:"iv_tweak"`
	Encryption string          `json:"encryption"`
	SectorSize int             `json:"sector_size"`
	Integrity  json.RawMessage `json:"integrity"`
	Flags      []string        `json:"flags"`
}

type digest2 struct {
	Type       string   `json:"type"`
	Keyslots   []string `json:"keyslots"`
	Segments   []string `json:"segments"`
	Hash       string   `json:"hash"`
	Iterations int64    `json:"iterations"`
	Salt       []byte   `json:"salt"`
	Digest     []byte   `json:"digest"`
}

// parseJSON parses the JSON of a header of version 2.
func (c *Container) parseJSON(text []byte) error {
	var h header2
	if err := json.Unmarshal(text, &h); err != nil {
		return damaged("the JSON of its LUKS header: %v", err)
	}
	if list := h.Config.Requirements.Mandatory; len(list) > 0 {
		return unsupported("LUKS requires %q, which is not supported here", shortened(list[0]))
	}
	if len(h.Keyslots) > maxSlots || len(h.Digests) > maxObjects || len(h.Segments) > maxObjects {
		return damaged("its LUKS header has %d key slots, %d digests and %d segments", len(h.Keyslots), len(h.Digests),
			len(h.Segments))
	}
	if len(h.Segments) != 1 {
		return unsupported("LUKS with %d segments is not supported here", len(h.Segments))
	}
	for id, s := range h.Segments {
		if err := c.setSegment(s); err != nil {
			return err
		}
		return c.addSlots(h, id)
	}
	return nil
}

// shortened limits the text of a header in an error.
func shortened(s string) string { return s[:min(len(s), 64)] }

func (c *Container) setSegment(s segment2) error {
	switch {
	case s.Type != "crypt":
		return unsupported("LUKS with a segment of the type %q is not supported here", shortened(s.Type))
	case len(s.Integrity) > 0:
		return unsupported("LUKS with integrity protection is not supported here")
	case len(s.Flags) > 0:
		return unsupported("LUKS with a segment of the kind %q is not supported here", shortened(s.Flags[0]))
	}
	if err := checkCipher(s.Encryption, maxKeyBytes); err != nil {
		return err
	}
	start, err := strconv.ParseInt(s.Offset, 10, 64)
	if err == nil && start == 0 {
		return errDetached
	}
	if err != nil || start < 2*minHeaderBytes || start > c.size || start%sectorBytes != 0 {
		return damaged("its encrypted data is at byte %q", shortened(s.Offset))
	}
	iv, err := strconv.ParseUint(s.IVTweak, 10, 64)
	if err != nil {
		return damaged("its encrypted data has the tweak %q", shortened(s.IVTweak))
	}
	length := c.size - start
	if s.Size != sizeDynamic {
		n, err := strconv.ParseInt(s.Size, 10, 64)
		if err != nil || n < 0 {
			return damaged("its encrypted data has %q bytes", shortened(s.Size))
		}
		length = min(n, length)
	}
	if s.SectorSize < sectorBytes || s.SectorSize > maxSectorBytes || s.SectorSize&(s.SectorSize-1) != 0 {
		return damaged("its encrypted data has sectors of %d bytes", s.SectorSize)
	}
	c.segment = segment{start: start, length: length, sectorBytes: s.SectorSize, firstIV: iv}
	return nil
}

// addSlots adds the key slots with the key of a segment, those of a higher priority first.
func (c *Container) addSlots(h header2, segment string) error {
	priority := map[string]int{}
	for id, s := range h.Keyslots {
		if priority[id] = 1; s.Priority != nil {
			priority[id] = *s.Priority
		}
	}
	ids := slices.SortedFunc(maps.Keys(h.Keyslots), func(a, b string) int {
		return cmp.Or(cmp.Compare(priority[b], priority[a]), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	for _, id := range ids {
		for _, key := range slices.Sorted(maps.Keys(h.Digests)) {
			d := h.Digests[key]
			if !slices.Contains(d.Keyslots, id) || !slices.Contains(d.Segments, segment) {
				continue
			}
			slot, err := h.Keyslots[id].parse(id, d)
			if err != nil {
				c.unread = append(c.unread, fmt.Errorf("key slot %s: %w", id, err))
			} else {
				c.addSlot(slot)
			}
			break
		}
	}
	return c.checkSlots()
}

func (s keySlot2) parse(id string, d digest2) (k keySlot, err error) {
	switch {
	case s.Type != "luks2":
		return k, unsupported("the type %q is not supported here", shortened(s.Type))
	case s.AF.Type != "luks1":
		return k, unsupported("the type of stripes %q is not supported here", shortened(s.AF.Type))
	case s.Area.Type != "raw":
		return k, unsupported("the type of area %q is not supported here", shortened(s.Area.Type))
	case d.Type != kdfPBKDF2:
		return k, unsupported("the type of digest %q is not supported here", shortened(d.Type))
	}
	if err := checkCipher(s.Area.Encryption, s.Area.KeySize); err != nil {
		return k, err
	}
	start, startErr := strconv.ParseInt(s.Area.Offset, 10, 64)
	size, sizeErr := strconv.ParseInt(s.Area.Size, 10, 64)
	if startErr != nil || sizeErr != nil {
		return k, damaged("its area has %q bytes at %q", shortened(s.Area.Size), shortened(s.Area.Offset))
	}
	if s.KeySize < 0 || s.KeySize > maxKeyBytes || s.AF.Stripes < 0 || s.AF.Stripes > maxStripes {
		return k, damaged("it has a key of %d bytes in %d stripes", s.KeySize, s.AF.Stripes)
	}
	iterations := s.KDF.Time
	if s.KDF.Type == kdfPBKDF2 {
		iterations = s.KDF.Iterations
	}
	return keySlot{
		name: id, keyBytes: int(s.KeySize), stripes: int(s.AF.Stripes), hash: s.AF.Hash, areaStart: start,
		areaBytes: size, areaKey: int(s.Area.KeySize),
		kdf: derivation{
			kind: s.KDF.Type, hash: s.KDF.Hash, iterations: iterations, memoryKiB: s.KDF.Memory,
			lanes: s.KDF.CPUs, salt: s.KDF.Salt,
		},
		digest: digest{
			derivation{kind: kdfPBKDF2, hash: d.Hash, iterations: d.Iterations, salt: d.Salt}, d.Digest,
		},
	}, nil
}

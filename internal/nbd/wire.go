package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The numbers of the protocol.
const (
	initMagic   = 0x4e42444d41474943 // "NBDMAGIC"
	optionMagic = 0x49484156454f5054 // "IHAVEOPT"
	answerMagic = 0x0003e889045565a9 // of an answer to an option

	requestMagic    = 0x25609513
	simpleMagic     = 0x67446698 // of a simple reply
	structuredMagic = 0x668e33ef // of a chunk of a structured reply

	flagFixedNewstyle, flagNoZeroes = 1 << 0, 1 << 1

	// Of a disk: has flags, read-only, knows DF, may be used over several connections.
	diskFlags = 1<<0 | 1<<1 | 1<<7 | 1<<8

	optionAbort, optionInfo, optionGo, optionStructured, optionSetContext = 2, 6, 7, 8, 10

	answerAck, answerInfo, answerContext = 1, 3, 4
	answerUnsupported                    = 1<<31 + 1
	answerInvalid                        = 1<<31 + 3
	answerUnknown                        = 1<<31 + 6

	infoExport, infoBlockSize = 0, 3

	commandRead, commandDisconnect, commandStatus = 0, 2, 7

	commandFlagOne = 1 << 3 // of a status: one extent is enough

	chunkDone                                     = 1 << 0 // of the flags of a chunk
	chunkData, chunkHole, chunkStatus, chunkError = 1, 2, 5, 1<<15 + 1

	statusHole, statusZero = 1 << 0, 1 << 1

	errnoPermission, errnoIO, errnoInvalid, errnoOverflow = 1, 5, 22, 75
)

// allocationContext is the one metadata context, and its number.
const (
	allocationContext = "base:allocation"
	contextNumber     = 1
)

// Limits of what a client sends.
const (
	maxOptions     = 64
	maxOptionBytes = 4 << 10
	maxNameBytes   = 255
	maxReadBytes   = 32 << 20 // of one request; clients learn it
	preferredBytes = 4 << 10  // block size that clients should use
	maxExtents     = 1024     // in one status
)

var errProtocol = errors.New("the client does not speak NBD")

// option is an option of the handshake.
type option struct {
	kind uint32
	data []byte
}

// readOption reads an option.
func readOption(r io.Reader) (o option, err error) {
	var head [16]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return o, err
	}
	size := binary.BigEndian.Uint32(head[12:])
	if binary.BigEndian.Uint64(head[:]) != optionMagic {
		return o, errProtocol
	}
	if size > maxOptionBytes {
		return o, fmt.Errorf("an option of %d bytes is longer than %d", size, maxOptionBytes)
	}
	o = option{binary.BigEndian.Uint32(head[8:]), make([]byte, size)}
	_, err = io.ReadFull(r, o.data)
	return o, err
}

// readExportName splits the data of INFO, GO and SET_META_CONTEXT after the name of a disk.
func readExportName(data []byte) (name string, rest []byte, ok bool) {
	if len(data) < 4 {
		return "", nil, false
	}
	size := binary.BigEndian.Uint32(data)
	if data = data[4:]; size > maxNameBytes || int64(size) > int64(len(data)) {
		return "", nil, false
	}
	return string(data[:size]), data[size:], true
}

// wantsAllocation reports whether SET_META_CONTEXT asks for the context that there is.
func wantsAllocation(queries []byte) (wants, ok bool) {
	if len(queries) < 4 {
		return false, false
	}
	n := binary.BigEndian.Uint32(queries)
	queries = queries[4:]
	for ; n > 0; n-- {
		query, rest, ok := readExportName(queries)
		if !ok {
			return false, false
		}
		wants, queries = wants || query == allocationContext, rest
	}
	return wants, len(queries) == 0
}

// request is a request of the transmission.
type request struct {
	flags, kind uint16
	cookie      uint64
	off         uint64
	size        uint32
}

// readRequest reads a request.
func readRequest(r io.Reader) (q request, err error) {
	var head [28]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return q, err
	}
	if binary.BigEndian.Uint32(head[:]) != requestMagic {
		return q, errProtocol
	}
	return request{
		flags: binary.BigEndian.Uint16(head[4:]), kind: binary.BigEndian.Uint16(head[6:]),
		cookie: binary.BigEndian.Uint64(head[8:]), off: binary.BigEndian.Uint64(head[16:]),
		size: binary.BigEndian.Uint32(head[24:]),
	}, nil
}

// answer encodes an answer to an option.
func answer(kind, result uint32, data []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, answerMagic)
	b = binary.BigEndian.AppendUint32(b, kind)
	b = binary.BigEndian.AppendUint32(b, result)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(data))), data...)
}

// chunkHead encodes the head of the only chunk of a reply, before size bytes.
func chunkHead(to []byte, kind uint16, cookie uint64, size int) []byte {
	to = binary.BigEndian.AppendUint32(to, structuredMagic)
	to = binary.BigEndian.AppendUint16(to, chunkDone)
	to = binary.BigEndian.AppendUint16(to, kind)
	to = binary.BigEndian.AppendUint64(to, cookie)
	return binary.BigEndian.AppendUint32(to, uint32(size))
}

// simpleHead encodes the head of a simple reply.
func simpleHead(to []byte, errno uint32, cookie uint64) []byte {
	to = binary.BigEndian.AppendUint32(to, simpleMagic)
	to = binary.BigEndian.AppendUint32(to, errno)
	return binary.BigEndian.AppendUint64(to, cookie)
}

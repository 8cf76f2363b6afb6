//go:build !purego

#include "textflag.h"

// Two SHA-256 states are advanced by one block each, as in FIPS 180-4, 6.2.2. The halves of a state are in the order
// that SHA256RNDS2 wants: A B E F in one register, C D G H in the other one. X0 has the words of the next rounds plus
// their constants, as the instruction demands.

// ROUNDS does two of the four rounds of a quad, and prepares the other two.
#define ROUNDS_1(abef, cdgh, words, constants) \
	VPADDD      constants, words, X0 \
	SHA256RNDS2 X0, abef, cdgh       \
	VPSHUFD     $0x0e, X0, X0

#define ROUNDS_2(abef, cdgh) \
	SHA256RNDS2 X0, cdgh, abef

// LOAD reads four words of the block.
#define LOAD(at, words) \
	VMOVDQU at, words \
	VPSHUFB X15, words, words

// EXTEND completes the next four words of the message schedule.
#define EXTEND(previous, words, next, temp) \
	VPALIGNR   $4, previous, words, temp \
	VPADDD     temp, next, next          \
	SHA256MSG2 words, next

// FIRST is a quad of rounds with words of the block.
#define FIRST(abef, cdgh, at, words, constants) \
	LOAD(at, words)                        \
	ROUNDS_1(abef, cdgh, words, constants) \
	ROUNDS_2(abef, cdgh)

// SECOND is FIRST, and begins the extension of the words before.
#define SECOND(abef, cdgh, at, previous, words, constants) \
	FIRST(abef, cdgh, at, words, constants) \
	SHA256MSG1 words, previous

// MIDDLE is a quad of rounds that extends the message schedule.
#define MIDDLE(abef, cdgh, previous, words, next, temp, constants) \
	ROUNDS_1(abef, cdgh, words, constants) \
	EXTEND(previous, words, next, temp)    \
	ROUNDS_2(abef, cdgh)                   \
	SHA256MSG1 words, previous

// LATE is MIDDLE without a begin of another extension.
#define LATE(abef, cdgh, previous, words, next, temp, constants) \
	ROUNDS_1(abef, cdgh, words, constants) \
	EXTEND(previous, words, next, temp)    \
	ROUNDS_2(abef, cdgh)

// LAST is a quad of rounds without an extension.
#define LAST(abef, cdgh, words, constants) \
	ROUNDS_1(abef, cdgh, words, constants) \
	ROUNDS_2(abef, cdgh)

// TO_HALVES brings the words A to D and E to H of a state into the order of the instructions.
#define TO_HALVES(low, high, temp) \
	VPSHUFD   $0xb1, low, low          \
	VPSHUFD   $0x1b, high, high        \
	VMOVDQA   low, temp                \
	VPALIGNR  $8, high, low, low       \
	VPBLENDW  $0xf0, temp, high, high

// FROM_HALVES is the reverse of TO_HALVES.
#define FROM_HALVES(low, high, temp) \
	VPSHUFD   $0x1b, low, low          \
	VPSHUFD   $0xb1, high, high        \
	VMOVDQA   low, temp                \
	VPBLENDW  $0xf0, high, low, low    \
	VPALIGNR  $8, temp, high, high

// func addBlocks(x, y *[8]uint32, p, q []byte)
TEXT ·addBlocks(SB), NOSPLIT, $64-64
	MOVQ x+0(FP), DI
	MOVQ y+8(FP), R8
	MOVQ p_base+16(FP), SI
	MOVQ p_len+24(FP), DX
	MOVQ q_base+40(FP), R9
	SHRQ $6, DX
	JZ   done

	VMOVDQU flip<>+0(SB), X15
	LEAQ    constants<>+0(SB), AX
	VMOVDQU (DI), X1
	VMOVDQU 16(DI), X2
	TO_HALVES(X1, X2, X7)
	VMOVDQU (R8), X8
	VMOVDQU 16(R8), X9
	TO_HALVES(X8, X9, X14)

block:
	VMOVDQU X1, 0(SP)
	VMOVDQU X2, 16(SP)
	VMOVDQU X8, 32(SP)
	VMOVDQU X9, 48(SP)

	FIRST(X1, X2, 0(SI), X3, 0(AX))
	FIRST(X8, X9, 0(R9), X10, 0(AX))
	SECOND(X1, X2, 16(SI), X3, X4, 16(AX))
	SECOND(X8, X9, 16(R9), X10, X11, 16(AX))
	SECOND(X1, X2, 32(SI), X4, X5, 32(AX))
	SECOND(X8, X9, 32(R9), X11, X12, 32(AX))
	LOAD(48(SI), X6)
	MIDDLE(X1, X2, X5, X6, X3, X7, 48(AX))
	LOAD(48(R9), X13)
	MIDDLE(X8, X9, X12, X13, X10, X14, 48(AX))
	MIDDLE(X1, X2, X6, X3, X4, X7, 64(AX))
	MIDDLE(X8, X9, X13, X10, X11, X14, 64(AX))
	MIDDLE(X1, X2, X3, X4, X5, X7, 80(AX))
	MIDDLE(X8, X9, X10, X11, X12, X14, 80(AX))
	MIDDLE(X1, X2, X4, X5, X6, X7, 96(AX))
	MIDDLE(X8, X9, X11, X12, X13, X14, 96(AX))
	MIDDLE(X1, X2, X5, X6, X3, X7, 112(AX))
	MIDDLE(X8, X9, X12, X13, X10, X14, 112(AX))
	MIDDLE(X1, X2, X6, X3, X4, X7, 128(AX))
	MIDDLE(X8, X9, X13, X10, X11, X14, 128(AX))
	MIDDLE(X1, X2, X3, X4, X5, X7, 144(AX))
	MIDDLE(X8, X9, X10, X11, X12, X14, 144(AX))
	MIDDLE(X1, X2, X4, X5, X6, X7, 160(AX))
	MIDDLE(X8, X9, X11, X12, X13, X14, 160(AX))
	MIDDLE(X1, X2, X5, X6, X3, X7, 176(AX))
	MIDDLE(X8, X9, X12, X13, X10, X14, 176(AX))
	MIDDLE(X1, X2, X6, X3, X4, X7, 192(AX))
	MIDDLE(X8, X9, X13, X10, X11, X14, 192(AX))
	LATE(X1, X2, X3, X4, X5, X7, 208(AX))
	LATE(X8, X9, X10, X11, X12, X14, 208(AX))
	LATE(X1, X2, X4, X5, X6, X7, 224(AX))
	LATE(X8, X9, X11, X12, X13, X14, 224(AX))
	LAST(X1, X2, X6, 240(AX))
	LAST(X8, X9, X13, 240(AX))

	VPADDD 0(SP), X1, X1
	VPADDD 16(SP), X2, X2
	VPADDD 32(SP), X8, X8
	VPADDD 48(SP), X9, X9
	ADDQ   $64, SI
	ADDQ   $64, R9
	DECQ   DX
	JNZ    block

	FROM_HALVES(X1, X2, X7)
	VMOVDQU X1, (DI)
	VMOVDQU X2, 16(DI)
	FROM_HALVES(X8, X9, X14)
	VMOVDQU X8, (R8)
	VMOVDQU X9, 16(R8)

done:
	RET

// func hasSHA() bool
TEXT ·hasSHA(SB), NOSPLIT, $0-1
	MOVB  $0, ret+0(FP)
	XORL  AX, AX
	CPUID
	CMPL  AX, $7
	JLT   none
	MOVL  $7, AX
	XORL  CX, CX
	CPUID
	SHRL  $29, BX
	ANDL  $1, BX
	MOVB  BX, ret+0(FP)

none:
	RET

// flip reverses the bytes of each word.
DATA flip<>+0(SB)/8, $0x0405060700010203
DATA flip<>+8(SB)/8, $0x0c0d0e0f08090a0b
GLOBL flip<>(SB), RODATA|NOPTR, $16

DATA constants<>+0(SB)/8, $0x71374491428a2f98
DATA constants<>+8(SB)/8, $0xe9b5dba5b5c0fbcf
DATA constants<>+16(SB)/8, $0x59f111f13956c25b
DATA constants<>+24(SB)/8, $0xab1c5ed5923f82a4
DATA constants<>+32(SB)/8, $0x12835b01d807aa98
DATA constants<>+40(SB)/8, $0x550c7dc3243185be
DATA constants<>+48(SB)/8, $0x80deb1fe72be5d74
DATA constants<>+56(SB)/8, $0xc19bf1749bdc06a7
DATA constants<>+64(SB)/8, $0xefbe4786e49b69c1
DATA constants<>+72(SB)/8, $0x240ca1cc0fc19dc6
DATA constants<>+80(SB)/8, $0x4a7484aa2de92c6f
DATA constants<>+88(SB)/8, $0x76f988da5cb0a9dc
DATA constants<>+96(SB)/8, $0xa831c66d983e5152
DATA constants<>+104(SB)/8, $0xbf597fc7b00327c8
DATA constants<>+112(SB)/8, $0xd5a79147c6e00bf3
DATA constants<>+120(SB)/8, $0x1429296706ca6351
DATA constants<>+128(SB)/8, $0x2e1b213827b70a85
DATA constants<>+136(SB)/8, $0x53380d134d2c6dfc
DATA constants<>+144(SB)/8, $0x766a0abb650a7354
DATA constants<>+152(SB)/8, $0x92722c8581c2c92e
DATA constants<>+160(SB)/8, $0xa81a664ba2bfe8a1
DATA constants<>+168(SB)/8, $0xc76c51a3c24b8b70
DATA constants<>+176(SB)/8, $0xd6990624d192e819
DATA constants<>+184(SB)/8, $0x106aa070f40e3585
DATA constants<>+192(SB)/8, $0x1e376c0819a4c116
DATA constants<>+200(SB)/8, $0x34b0bcb52748774c
DATA constants<>+208(SB)/8, $0x4ed8aa4a391c0cb3
DATA constants<>+216(SB)/8, $0x682e6ff35b9cca4f
DATA constants<>+224(SB)/8, $0x78a5636f748f82ee
DATA constants<>+232(SB)/8, $0x8cc7020884c87814
DATA constants<>+240(SB)/8, $0xa4506ceb90befffa
DATA constants<>+248(SB)/8, $0xc67178f2bef9a3f7
GLOBL constants<>(SB), RODATA|NOPTR, $256

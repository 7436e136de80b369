/* SPDX-License-Identifier: Apache-2.0 */
/* The two hooks. A thunk saves the integer arguments, asks the router which name to use and where to
 * go, restores, and jumps: the caller's return address stays on top, so that ld.so sees the true
 * caller (RUNPATH, $ORIGIN, RTLD_NEXT, namespaces). C++ tail calls do not promise that.
 * dl* functions take no vector arguments. A null target answers null.
 *
 * Each has both of glibc's versions: that of libdl.so.2 and, as default, that of libc.so.6. dlvsym
 * finds nothing else; imports without a version find them too.
 *
 * cudaguard_route_dlopen(const char *name, const void *return_address, int mode) -> {name, target}
 */
#if defined(__x86_64__)

	.section .note.gnu.property,"a",@note /* IBT and SHSTK kept: endbr64 first, no return games */
	.p2align 3
	.long 4, 16, 5
	.asciz "GNU"
	.long 0xc0000002, 4, 3, 0

/* \slot: where the name lies among the saved registers */
.macro THUNK name, router, slot, old
	.text
	.p2align 4
	.globl	cudaguard_\name
	.type	cudaguard_\name, @function
	.symver	cudaguard_\name, \name\()@GLIBC_\old
	.symver	cudaguard_\name, \name\()@@GLIBC_2.34
cudaguard_\name:
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rdi, 0
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rsi, 0
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rdx, 0
	movq	\slot(%rsp), %rdi
	movl	(\slot - 8)(%rsp), %edx /* the mode stands behind the name */
	movq	24(%rsp), %rsi
	call	\router
	movq	%rdx, %r11
	movq	%rax, \slot(%rsp)
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rdx
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rsi
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rdi
	testq	%r11, %r11
	jz	1f
	jmp	*%r11
1:	xorl	%eax, %eax
	ret
	.cfi_endproc
	.size	cudaguard_\name, . - cudaguard_\name
.endm

	THUNK dlopen, cudaguard_route_dlopen, 16, 2.2.5
	THUNK dlmopen, cudaguard_route_dlmopen, 8, 2.3.4

#elif defined(__aarch64__)

	.section .note.gnu.property,"a",@note /* BTI and PAC */
	.p2align 3
	.long 4, 16, 5
	.asciz "GNU"
	.long 0xc0000000, 4, 3, 0

.macro THUNK name, router, slot, old
	.text
	.p2align 4
	.globl	cudaguard_\name
	.type	cudaguard_\name, %function
	.symver	cudaguard_\name, \name\()@GLIBC_\old
	.symver	cudaguard_\name, \name\()@@GLIBC_2.34
cudaguard_\name:
	.cfi_startproc
	hint	#34 /* bti c */
	stp	x0, x1, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	stp	x2, x30, [sp, #16]
	.cfi_rel_offset x30, 24
	ldr	x0, [sp, #\slot]
	ldr	x2, [sp, #(\slot + 8)] /* the mode stands behind the name */
	mov	x1, x30
	bl	\router
	mov	x16, x1
	str	x0, [sp, #\slot]
	ldp	x2, x30, [sp, #16]
	.cfi_restore x30
	ldp	x0, x1, [sp], #32
	.cfi_adjust_cfa_offset -32
	cbz	x16, 1f
	br	x16
1:	mov	x0, xzr
	ret
	.cfi_endproc
	.size	cudaguard_\name, . - cudaguard_\name
.endm

	THUNK dlopen, cudaguard_route_dlopen, 0, 2.17
	THUNK dlmopen, cudaguard_route_dlmopen, 8, 2.17

#else
#error "cudaguard knows x86-64 and AArch64"
#endif

	.section .note.GNU-stack,"",%progbits

/* SPDX-License-Identifier: Apache-2.0 */
/* The two hooks. A thunk saves the integer arguments, gets the name and the target from the router,
 * restores the arguments and jumps. The caller's return address stays on top, so that ld.so sees
 * the true caller (RUNPATH, $ORIGIN, RTLD_NEXT, namespaces). C++ does not guarantee such a tail
 * call. dl* functions take no vector arguments. If the target is null, the thunk returns null.
 *
 * Each hook has two forms. ld.so binds an import to the form without a version, because that
 * definition fits every import and comes first in the symbol table. dlvsym finds no definition
 * without a version: it finds the other form, which has glibc's versions. The form tells how the
 * caller found us, and so what it would have reached without us: another library's hook, or libc.
 *
 * cudaguard_route_dlopen(const char *name, const void *return_address, int mode) -> {name, target}
 * The routers of dlmopen get its first argument, the namespace, as their last one.
 */
.macro VERSION name, old /* that of libdl.so.2; that of libc.so.6 */
	.symver	cudaguard_\name, \name\()@GLIBC_\old
	.symver	cudaguard_\name, \name\()@GLIBC_2.34
.endm

#if defined(__x86_64__)

	.section .note.gnu.property,"a",@note /* IBT, SHSTK: endbr64 comes first, returns match */
	.p2align 3
	.long 4, 16, 5
	.asciz "GNU"
	.long 0xc0000002, 4, 3, 0

/* \slot: the stack offset of the saved name */
.macro THUNK name, router, slot
	.text
	.p2align 4
	.globl	\name
	.type	\name, @function
\name:
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
	movl	(\slot - 8)(%rsp), %edx /* the mode is the argument after the name */
	movq	24(%rsp), %rsi
	movq	16(%rsp), %rcx
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
	.size	\name, . - \name
.endm

	THUNK dlopen, cudaguard_route_dlopen, 16
	THUNK dlmopen, cudaguard_route_dlmopen, 8
	THUNK cudaguard_dlopen, cudaguard_route_versioned_dlopen, 16
	THUNK cudaguard_dlmopen, cudaguard_route_versioned_dlmopen, 8
	VERSION dlopen, 2.2.5
	VERSION dlmopen, 2.3.4

#elif defined(__aarch64__)

	.section .note.gnu.property,"a",@note /* BTI and PAC */
	.p2align 3
	.long 4, 16, 5
	.asciz "GNU"
	.long 0xc0000000, 4, 3, 0

.macro THUNK name, router, slot
	.text
	.p2align 4
	.globl	\name
	.type	\name, %function
\name:
	.cfi_startproc
	hint	#34 /* bti c */
	stp	x0, x1, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	stp	x2, x30, [sp, #16]
	.cfi_rel_offset x30, 24
	mov	x3, x0
	ldr	x0, [sp, #\slot]
	ldr	x2, [sp, #(\slot + 8)] /* the mode is the argument after the name */
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
	.size	\name, . - \name
.endm

	THUNK dlopen, cudaguard_route_dlopen, 0
	THUNK dlmopen, cudaguard_route_dlmopen, 8
	THUNK cudaguard_dlopen, cudaguard_route_versioned_dlopen, 0
	THUNK cudaguard_dlmopen, cudaguard_route_versioned_dlmopen, 8
	VERSION dlopen, 2.17
	VERSION dlmopen, 2.17

#else
#error "cudaguard knows x86-64 and AArch64"
#endif

	.section .note.GNU-stack,"",%progbits

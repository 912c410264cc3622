// needs: decay
